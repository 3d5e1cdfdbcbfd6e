export { createInspectorHandler, createInspectorNodeListener } from "./faces/inspector/handlers.ts";
export type {
  AuthorizeInspector,
  InspectorGrant,
  InspectorOptions,
  InspectorRequest,
  InspectorTarget,
} from "./faces/inspector/options.ts";
