import type { WireResponse } from "../http/wire.ts";
import { digestOf } from "../runtime/log/system.ts";
import { pageHtml } from "./page-source.ts";

/** What every response says: it is shown nowhere else, kept nowhere, and tells no other page where it was. */
export const safeHeaders: Readonly<Record<string, string>> = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "x-frame-options": "DENY",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** The page itself. */
export async function pageResponse(cookie: string | undefined): Promise<WireResponse> {
  made ??= make();
  const { html, policy } = await made;
  return document(200, html, policy, cookie === undefined ? {} : { "set-cookie": cookie });
}

/** A page that says why there is none. */
export function refusal(status: number, message: string): WireResponse {
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Inspector</title><h1>Not open</h1><p>${escaped(message)}</p></html>`;
  return document(status, html, policyOf([], []));
}

interface Made {
  readonly html: string;
  readonly policy: string;
}

/** The page is the same for all inspectors of a process. */
let made: Promise<Made> | undefined;

async function make(): Promise<Made> {
  const html = await pageHtml();
  const [scripts, styles] = await Promise.all([hashesIn(html, "script"), hashesIn(html, "style")]);
  return { html, policy: policyOf(scripts, styles) };
}

/** The hashes of the inline texts of a tag. The page is built here, and so has no other form of it. */
function hashesIn(html: string, tag: "script" | "style"): Promise<readonly string[]> {
  const texts = [...html.matchAll(new RegExp(`<${tag}(?: [^>]*)?>(.*?)</${tag}>`, "gs"))];
  return Promise.all(texts.map(async ([, text = ""]) => `'sha256-${await digestOf(text)}'`));
}

function policyOf(scripts: readonly string[], styles: readonly string[]): string {
  const only = (hashes: readonly string[]): string => (hashes.length === 0 ? "'none'" : hashes.join(" "));
  return [
    "default-src 'none'",
    `script-src ${only(scripts)}`,
    `style-src ${only(styles)}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
}

function document(status: number, html: string, policy: string, headers: Record<string, string> = {}): WireResponse {
  const type = { "content-type": "text/html; charset=utf-8", "content-security-policy": policy };
  return { status, headers: { ...safeHeaders, ...type, ...headers }, body: html };
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
