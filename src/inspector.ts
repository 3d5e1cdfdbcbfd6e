export { createInspectorHandler, createInspectorNodeListener } from "./inspector/handlers.ts";
export type { InspectorGrant, InspectorOptions } from "./inspector/options.ts";
