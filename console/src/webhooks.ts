// What came to the webhook of a flow.
import { api, byId, got } from './api'
import { useOnce } from './data'
import type { Kind } from './names'

/** The path in a run of what is at this path of a request: a key in brackets has no dot before it. */
export const triggerPath = (path: string) => `trigger${path.startsWith('[') ? '' : '.'}${path}`

export const webhookSchema = (of: Kind, id: string) => {
  const asked = byId(id)
  return got(
    of === 'workflows'
      ? api.GET('/workflows/{id}/webhook-schema', asked)
      : api.GET('/automations/{id}/webhook-schema', asked),
  )
}

/** What came to the webhook of a flow; null until it is read, and where there is none. */
export const useWebhookSchema = (of: Kind, id: string, isHook = true) =>
  useOnce(isHook ? `schema ${id}` : '', async () => (isHook ? webhookSchema(of, id) : null)).value
