// The paths that a template can read: of the contact, the workspace and, flow by flow, of what came to its webhook.
import { useRef, useState } from 'preact/hooks'
import { api, byId, got } from './api'
import { useLoaded } from './data'
import { useFlows, useUsed, type Kind } from './names'
import { Field, Shown, step } from './ui'

const ALWAYS = [
  'contact.firstName',
  'contact.lastName',
  'contact.email',
  'contact.phone',
  'workspace.name',
  'run.id',
  'unsubscribeUrl',
  'preferencesUrl',
]
const MOST = 100

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

/** Remembers the box that was typed into last, below the element that these listen on. */
export function useLastBox() {
  const last = useRef<Element | null>(null)
  return {
    last,
    onFocusIn: (event: FocusEvent) => {
      last.current = (event.target as Element).closest('.code, textarea, input[type=text]') ?? last.current
    },
  }
}

/** Where the cursor was in the box. */
function insertInto(box: Element, text: string) {
  const plain = box.matches('.code') ? box.querySelector('textarea') : (box as HTMLInputElement | HTMLTextAreaElement)
  if (!plain) return void box.querySelector('.host')?.dispatchEvent(new CustomEvent('insert', { detail: text }))
  plain.setRangeText(text, plain.selectionStart ?? plain.value.length, plain.selectionEnd ?? plain.value.length, 'end')
  plain.dispatchEvent(new Event('input', { bubbles: true }))
  plain.focus()
}

/** Inserts a path, in braces, where the cursor was. */
export function Paths({ last }: { last: { current: Element | null } }) {
  const flows = useFlows()
  const [chosen, setChosen] = useState('')
  const [isOpen, setOpen] = useState(false)
  const own = useUsed(isOpen).fields.map(each => step('contact.metadata', each.name))
  const hooks = (flows.rows ?? []).filter(each => each.triggerSource === 'inbound_webhook')
  const flow = hooks.find(each => each.id === chosen)
  const found = useLoaded(
    async () =>
      flow ? (await webhookSchema(flow.kind, flow.id)).paths.filter(each => !each.types.includes('object')) : [],
    [flow?.id],
  )
  const insert = (path: string) => {
    if (last.current?.isConnected) insertInto(last.current, `{{${path}}}`)
  }
  const button = (path: string, title?: string) => (
    <li key={path}>
      <button type="button" class="small" title={title} onClick={() => insert(path)}>
        {path}
      </button>
    </li>
  )
  return (
    <details class="given" onToggle={() => setOpen(true)}>
      <summary>Insert a value</summary>
      <p class="hint">It is inserted at the cursor.</p>
      <Field
        label="Flow"
        value={chosen}
        set={setChosen}
        growing={flows}
        options={[['', 'none: contact and workspace only'], ...hooks.map(each => [each.id, each.name] as const)]}
      />
      <ul class="plain paths">{[...ALWAYS, ...own].map(path => button(path))}</ul>
      {flow && (
        <Shown of={found}>
          {paths =>
            paths.length ? (
              <ul class="plain paths">
                {paths
                  .slice(0, MOST)
                  .map(each =>
                    button(
                      triggerPath(each.path),
                      `${JSON.stringify(each.example)}, in ${Math.round(each.presence * 100)} % of requests`,
                    ),
                  )}
              </ul>
            ) : (
              <p class="empty">Its webhook has received nothing yet.</p>
            )
          }
        </Shown>
      )}
    </details>
  )
}
