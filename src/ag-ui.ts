export { createAgUiHandler, createAgUiNodeListener } from "./faces/ag-ui/handlers.ts";
export type { AgUiOptions } from "./faces/ag-ui/options.ts";
