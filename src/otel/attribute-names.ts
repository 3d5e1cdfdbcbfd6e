/** The names of attributes: those of the GenAI conventions where they have one, and ours. */
export const AttributeName = {
  operation: "gen_ai.operation.name",
  agentName: "gen_ai.agent.name",
  agentVersion: "gen_ai.agent.version",
  conversationId: "gen_ai.conversation.id",
  input: "gen_ai.input.messages",
  tokenType: "gen_ai.token.type",
  errorType: "error.type",
  runId: "cadenza.run.id",
  parentRunId: "cadenza.run.parent_id",
  isFirst: "cadenza.run.is_first_call",
  status: "cadenza.run.status",
  tenant: "cadenza.tenant",
  /** How a call of an agent function or a question has ended. */
  outcome: "cadenza.outcome",
  stepKey: "cadenza.step.key",
  stepAttempt: "cadenza.step.attempt",
  stepResult: "cadenza.step.result",
  questionId: "cadenza.question.id",
  questionName: "cadenza.question.name",
  questionKind: "cadenza.question.kind",
  question: "cadenza.question.text",
} as const;
