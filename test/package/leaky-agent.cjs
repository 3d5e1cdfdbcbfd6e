const assert = require("node:assert/strict");

exports.leaky = async function* () {
  const timer = setInterval(() => undefined, 60_000);
  yield "one";
  clearInterval(timer);
};

exports.check = ({ problems }) => {
  assert.equal(problems.length, 1);
  assert.match(problems[0], /: It left an interval of 60000 ms, set at leaky-agent\.cjs:4:17\. Uninterrupted/);
};
