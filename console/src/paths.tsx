// The paths that a template can read: of the contact, the workspace and, flow by flow, of what came to its webhook.
import { useRef, useState } from 'preact/hooks'
import { useLoaded } from './data'
import { useFlows, useUsed } from './names'
import { Offered } from './offered'
import { Field, Shown, step } from './ui'
import { triggerPath, webhookSchema } from './webhooks'

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
  const [isLost, setLost] = useState(false)
  const own = useUsed(isOpen).fields.map(each => step('contact.metadata', each.name))
  const hooks = (flows.rows ?? []).filter(each => each.triggerSource === 'inbound_webhook')
  const flow = hooks.find(each => each.id === chosen)
  const found = useLoaded(
    async () =>
      flow ? (await webhookSchema(flow.kind, flow.id)).paths.filter(each => !each.types.includes('object')) : [],
    [flow?.id],
  )
  const insert = (path: string) => {
    const box = last.current?.isConnected ? last.current : null
    setLost(!box)
    if (box) insertInto(box, `{{${path}}}`)
  }
  return (
    <details class="given" onToggle={() => setOpen(true)}>
      <summary>Insert a value</summary>
      <p class={isLost ? 'odd' : 'hint'} role="status">
        {isLost ? 'Click into the text first, where it belongs.' : 'It is inserted at the cursor.'}
      </p>
      <Field
        label="Flow"
        value={chosen}
        set={setChosen}
        growing={flows}
        options={[['', 'none: contact and workspace only'], ...hooks.map(each => [each.id, each.name] as const)]}
      />
      <Offered of={[...ALWAYS, ...own].map(path => [path] as const)} choose={insert} />
      {flow && (
        <Shown of={found}>
          {paths =>
            paths.length ? (
              <Offered
                of={paths.map(
                  each =>
                    [
                      triggerPath(each.path),
                      `${JSON.stringify(each.example)}, in ${Math.round(each.presence * 100)} % of requests`,
                    ] as const,
                )}
                choose={insert}
              />
            ) : (
              <p class="empty">Its webhook has received nothing yet.</p>
            )
          }
        </Shown>
      )}
    </details>
  )
}
