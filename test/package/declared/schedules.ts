import { AgentRuntime } from "cadenza";
import { schedules } from "cadenza/schedules";

export const plans = schedules(new AgentRuntime());
export const put = () => plans.put({ id: "report", agent_name: "report", input: "", everyMs: 60_000 });
export const page = () => plans.list({ tenant: "a" });
export const next = () => plans.next("report", 3);
