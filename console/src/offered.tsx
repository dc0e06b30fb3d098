// What can be put into a text, each by a button.
import { useRef, useState } from 'preact/hooks'
import { begun, valuesOf } from './lines'
import { useUsed } from './names'
import { sought } from './sought'
import { Button, Field } from './ui'

const MANY = 15 // buttons that are looked through at a glance
const MOST = 200 // that are shown at once

/** A text, and what more is known of it. */
export type Offer = readonly [text: string, about?: string]

/** The buttons, and a filter above many. */
export function Offered({ of, choose }: { of: readonly Offer[]; choose: (text: string) => void }) {
  const [words, setWords] = useState('')
  const isMany = of.length > MANY
  const found = isMany ? sought(of, ([text]) => text, words) : of
  return (
    <>
      {isMany && (
        <div onKeyDown={event => event.key === 'Enter' && event.preventDefault()}>
          <Field type="search" label={`Filter these ${of.length.toLocaleString()}`} value={words} set={setWords} />
        </div>
      )}
      <ul class="plain paths">
        {found.slice(0, MOST).map(([text, about]) => (
          <li key={text}>
            <Button small title={about} onClick={() => choose(text)}>
              {text}
            </Button>
          </li>
        ))}
      </ul>
      {isMany && (
        <p class="hint" role="status">
          {found.length ? found.length > MOST && `and ${(found.length - MOST).toLocaleString()} more` : 'None match.'}
        </p>
      )}
    </>
  )
}

/** Around a box of lines, `name = value`: the custom fields in use, of which a button begins a line. */
export function InUse({
  text,
  set,
  children,
}: {
  text: string
  set: (text: string) => void
  children: preact.ComponentChildren
}) {
  const [isOpen, setOpen] = useState(false)
  const area = useRef<HTMLDivElement>(null)
  const { fields } = useUsed(isOpen)
  const taken = valuesOf(text)
  const choose = (name: string) => {
    set(begun(text, name))
    requestAnimationFrame(() => {
      const box = area.current?.querySelector('textarea')
      box?.focus()
      box?.setSelectionRange(box.value.length, box.value.length)
    })
  }
  return (
    <div ref={area}>
      {children}
      <details class="given" onToggle={() => setOpen(true)}>
        <summary>Names in use</summary>
        <Offered
          of={fields.filter(({ name }) => !Object.hasOwn(taken, name)).map(({ name }) => [name] as const)}
          choose={choose}
        />
      </details>
    </div>
  )
}
