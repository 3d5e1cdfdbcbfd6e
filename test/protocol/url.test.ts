import { describe } from "vitest";
import { absoluteUrlSchema, httpUrlSchema } from "../../src/protocol/url.ts";
import { itAccepts, itRefuses } from "./tables.ts";

const http = ["https://example.com", "http://localhost:8000/resources/1?x=y#z", "HTTPS://EXAMPLE.com/a/../b"];
const otherSchemes = [
  "data:text/plain,hello world",
  "data:image/png;base64,AAAA",
  "s3://bucket/key",
  "urn:isbn:0451450523",
];
const relative = ["", "/path", "path", "//example.com/a", "?query", "example.com/a", "https://", "http://[", 7, null];

describe("an absolute URL", () => {
  itAccepts(
    absoluteUrlSchema,
    [...http, ...otherSchemes].map((url) => [url, url]),
  );
  itRefuses(
    absoluteUrlSchema,
    relative.map((url) => [JSON.stringify(url), url, []]),
  );
});

describe("an absolute http or https URL", () => {
  itAccepts(
    httpUrlSchema,
    http.map((url) => [url, url]),
  );
  itRefuses(
    httpUrlSchema,
    [...otherSchemes, ...relative, "http:example.com", "file:///etc/passwd", "javascript:alert(1)"].map((url) => [
      JSON.stringify(url),
      url,
      [],
    ]),
  );
});
