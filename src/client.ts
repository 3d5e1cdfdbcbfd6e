export { type ChatClientOptions, chatOptions, type LoadedChat, loadChat, type UseChatOptions } from "./client/chat.ts";
export { ClientError, type ClientIssue } from "./client/client-error.ts";
export { type ClientEventsOptions, ClientRun, type QuestionChoice, type WaitingOptions } from "./client/client-run.ts";
export type { ClientHeaders, ConnectionOptions } from "./client/connection.ts";
export { type Client, type ClientOptions, type ClientRunOptions, createClient } from "./client/create-client.ts";
export type { LoadedMessage, LoadedPart } from "./client/loaded-message.ts";
export type { ClientEvent, RunView, SubRunView } from "./client/run-view.ts";
export type { Agents, AnswerTo, InputTo, OutputOf, QuestionOf } from "./client/types.ts";
