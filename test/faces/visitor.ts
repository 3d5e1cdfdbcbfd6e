import type { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";

/** What the user of one device sees of a chat. */
export interface View {
  /** What the agent has said, in all its messages. */
  readonly text: string;
  /** The question that waits for an answer; null for none. */
  readonly question: string | null;
  /** Why it did not go on; null if it did. */
  readonly error: string | null;
}

/** A device on which a user has opened a chat, over one of the faces. */
export interface Visitor {
  /** Sends a message. Resolves when the run rests. */
  say(text: string): Promise<void>;
  /** Answers the open question. Resolves when the run rests. */
  answer(value: object): Promise<void>;
  /** Declines to answer it. */
  decline(reason: string): Promise<void>;
  /** Stops the run. */
  stop(): Promise<void>;
  /** Loses the connection. */
  disconnect(): Promise<void>;
  /** Shows what is in the chat, and follows its run until it rests. */
  open(): Promise<void>;
  readonly view: View;
  /** Whether it gets the text only when the run has ended. */
  readonly isSilent?: boolean;
  /** What it sends and gets. */
  readonly connection: Connection;
}

/** A way to reach agents. */
export interface FaceUnderTest {
  /** Faces of one kind send and get the same. */
  readonly kind: "page" | "chatOptions" | "agUi" | "acp" | "a2a" | "mcpCall" | "mcpSession" | "mcpTask";
  readonly name: string;
  visit(desk: Desk, chat: string): Visitor;
}
