export { createAgUiHandler, createAgUiNodeListener } from "./faces/ag-ui/handlers.ts";
