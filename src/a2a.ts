export { createA2aHandler, createA2aNodeListener } from "./faces/a2a/handlers.ts";
