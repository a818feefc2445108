"""Names of the GenAI semantic conventions of OpenTelemetry, in one place since they are not stable yet."""

INVOKE_WORKFLOW, INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_workflow", "invoke_agent", "chat", "execute_tool"

OPERATION = "gen_ai.operation.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
"""The run."""
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME, TOOL_CALL_ID, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"
ERROR_TYPE = "error.type"

SYSTEM_INSTRUCTIONS, INPUT_MESSAGES, OUTPUT_MESSAGES = (
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
)
TOOL_ARGUMENTS, TOOL_RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
"""Attributes with content, which are recorded only on request."""

CAPTURE_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

RUN_STATUS = "m3b.run.status"

PROVIDER_NAMES = {"gemini": "gcp.gemini"}
"""Names of providers in m3b -> in the conventions, if they differ."""
