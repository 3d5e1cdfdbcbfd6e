import { chatOptions, createClient, loadChat } from "cadenza/client";

export const client = createClient({ url: "http://localhost" });
export const begin = (text: string) => client.run("echo", text);
export const attach = (run_id: string) => client.attach("echo", run_id);
export const view = (run_id: string) => attach(run_id).view;
export const questions = (run_id: string) => attach(run_id).questions();
export const events = (run_id: string) => attach(run_id).events({ detail: true });
export const options = chatOptions({ api: "/chat/echo", id: "chat-17" });
export const load = () => loadChat({ api: "/chat/echo", id: "chat-17" });
