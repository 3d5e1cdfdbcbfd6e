export { type NatsWakerOptions, natsWaker } from "./durable/nats-waker.ts";
