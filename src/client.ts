export { type ChatClientOptions, chatOptions, type LoadedChat, loadChat, type UseChatOptions } from "./client/chat.ts";
export { ClientError } from "./client/client-error.ts";
export { ClientRun } from "./client/client-run.ts";
export type { ConnectionOptions } from "./client/connection.ts";
export { type Client, type ClientOptions, createClient } from "./client/create-client.ts";
export type { LoadedMessage } from "./client/loaded-message.ts";
export type { ClientEvent, RunView } from "./client/run-view.ts";
