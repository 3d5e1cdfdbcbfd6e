import type { RequestListener, Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { INestApplication, MiddlewareConsumer, NestModule } from "@nestjs/common";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { NestExpressApplication } from "@nestjs/platform-express";
import type { AgentRuntime } from "cadenza";
import type { AcpOptions } from "cadenza/http";
import { createAcpHandler, createAcpNodeListener } from "cadenza/http";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import type { Place } from "./client.ts";

/** A running service. */
export interface OpenPlace extends Place {
  close(): Promise<void>;
}

/** Requests that some hosts do not pass on. */
export type Kept =
  | "malformed bodies"
  | "long numbers"
  | "large bodies"
  | "empty bodies"
  | "other media types"
  | "untyped bodies"
  | "forbidden keys"
  | "bare values"
  | "odd paths";

/** A way to mount the service. */
export interface Mount {
  readonly name: string;
  /** The requests that the host answers by itself. */
  readonly keeps: readonly Kept[];
  readonly open: (runtime: AgentRuntime, options?: AcpOptions) => Promise<OpenPlace>;
}

/** Calls the handler without a server. */
export const inProcess: Mount = {
  name: "in process",
  keeps: [],
  open: async (runtime, options) => ({
    base: "http://service.test",
    fetch: createAcpHandler(runtime, options),
    close: async () => {},
  }),
};

/** Listens with `node:http`. */
export const nodeHttp: Mount = {
  name: "node:http",
  keeps: [],
  open: (runtime, options) => listen(createServer(createAcpNodeListener(runtime, options))),
};

/** Every supported mount. */
export const mounts: readonly Mount[] = [
  inProcess,
  nodeHttp,
  {
    name: "Express, below a path",
    keeps: [],
    open: (runtime, options) => {
      const app = express();
      app.use("/agents-of/acme", createAcpNodeListener(runtime, options));
      return listen(createServer(app as RequestListener), "/agents-of/acme");
    },
  },
  {
    name: "Express with express.json()",
    keeps: ["malformed bodies", "long numbers", "bare values"],
    open: (runtime, options) => {
      const app = express();
      app.use(express.json({ limit: "1mb" }));
      app.use(createAcpNodeListener(runtime, options));
      return listen(createServer(app as RequestListener));
    },
  },
  {
    name: "Nest, before its body parser, below a path",
    keeps: [],
    open: async (runtime, options) => {
      class AppModule {}
      Module({})(AppModule);
      const app = await NestFactory.create(AppModule, { logger: false });
      app.use("/acp", createAcpNodeListener(runtime, options));
      return listenNest(app);
    },
  },
  {
    name: "Nest, after its body parser, as the middleware of a module",
    keeps: ["malformed bodies", "long numbers", "bare values"],
    open: async (runtime, options) => {
      class AppModule implements NestModule {
        configure(consumer: MiddlewareConsumer): void {
          consumer.apply(createAcpNodeListener(runtime, options)).forRoutes("acp");
        }
      }
      Module({})(AppModule);
      const app = await NestFactory.create<NestExpressApplication>(AppModule, { logger: false });
      app.useBodyParser("json", { limit: "1mb" });
      return listenNest(app);
    },
  },
  {
    name: "Fastify, bodies not parsed, below a base path",
    keeps: ["odd paths"],
    open: async (runtime, options) => {
      const listener = createAcpNodeListener(runtime, { ...options, basePath: "/acp" });
      const app = fastify();
      app.removeAllContentTypeParsers();
      app.addContentTypeParser("*", (_request, _payload, done) => done(null));
      app.all("/acp/*", (request, reply) => {
        reply.hijack();
        listener(request.raw, reply.raw);
      });
      await app.ready();
      return listenWith(app.server, () => app.listen({ port: 0, host: "127.0.0.1" }), "/acp");
    },
  },
  {
    name: "Fastify, bodies parsed",
    keeps: [
      "malformed bodies",
      "long numbers",
      "empty bodies",
      "other media types",
      "untyped bodies",
      "forbidden keys",
      "bare values",
      "odd paths",
    ],
    open: async (runtime, options) => {
      const listener = createAcpNodeListener(runtime, options);
      const app = fastify();
      app.all("/*", (request, reply) => {
        reply.hijack();
        listener(Object.assign(request.raw, { body: request.body }), reply.raw);
      });
      return listenWith(app.server, () => app.listen({ port: 0, host: "127.0.0.1" }));
    },
  },
  {
    name: "Koa",
    keeps: [],
    open: (runtime, options) => {
      const listener = createAcpNodeListener(runtime, options);
      const app = new Koa();
      app.use((context) => {
        context.respond = false;
        listener(context.req, context.res);
      });
      return listen(createServer(app.callback()));
    },
  },
  {
    name: "Hono",
    keeps: [],
    open: (runtime, options) => {
      const handler = createAcpHandler(runtime, { ...options, basePath: "/acp" });
      const app = new Hono();
      app.all("/acp/*", (context) => handler(context.req.raw));
      return listen(createAdaptorServer({ fetch: app.fetch }) as Server, "/acp");
    },
  },
];

function listenNest(app: INestApplication): Promise<OpenPlace> {
  return listenWith(app.getHttpServer() as Server, () => app.listen(0, "127.0.0.1"), "/acp");
}

/** Opens a server on a free port. */
export function listen(server: Server, path = ""): Promise<OpenPlace> {
  return listenWith(server, () => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve())), path);
}

async function listenWith(server: Server, start: () => Promise<unknown>, path = ""): Promise<OpenPlace> {
  await start();
  const { port } = server.address() as AddressInfo;
  return {
    base: `http://127.0.0.1:${port}${path}`,
    fetch,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
