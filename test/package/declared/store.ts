import { MemoryStore } from "cadenza";
import { durable } from "cadenza/store";

export const store = durable(new MemoryStore());
export const find = (run_id: string) => store.find({ tenant: "", run_id });
export const lines = () => store.lines({ limit: 9 });
