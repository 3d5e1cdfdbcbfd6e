// As `leaky.mjs`, from CommonJS.
const { everyInterruption } = require("cadenza/testing");
const { check, leaky } = require("./leaky-agent.cjs");

everyInterruption(leaky, "Go").then(check);
