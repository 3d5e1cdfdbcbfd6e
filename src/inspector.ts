export { createInspectorHandler, createInspectorNodeListener } from "./inspector/handlers.ts";
export type {
  AuthorizeInspector,
  InspectorGrant,
  InspectorOptions,
  InspectorRequest,
  InspectorTarget,
} from "./inspector/options.ts";
