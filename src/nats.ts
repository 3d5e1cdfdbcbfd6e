export type {
  NatsConsumer,
  NatsJetStream,
  NatsMessage,
  NatsMessages,
  NatsWakerOptions,
} from "./durable/nats-waker.ts";
export { natsWaker } from "./durable/nats-waker.ts";
