/** What the tests use of jsdom. Its own types would bring those of a browser page everywhere. */
declare module "jsdom" {
  export class JSDOM {
    constructor(html: string);
    readonly window: {
      readonly document: { querySelector(selector: string): unknown };
      readonly navigator: unknown;
    };
  }
}
