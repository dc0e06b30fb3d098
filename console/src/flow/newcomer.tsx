// What a contact begins with that a trigger makes.
import { useState } from 'preact/hooks'
import { same } from '../exact'
import { linesOf, valuesOf } from '../lines'
import { InUse } from '../offered'
import { Field } from '../ui'
import { DEFAULTS, Typed, words } from './form'
import { put, type Json } from './model'

const some = (of: Json) => (Object.keys(of).length ? of : undefined)
let last = { of: '', text: '' } // a line without a value stands in no definition

export function NewContact({ defaults, set }: { defaults: Json; set: (defaults: Json | undefined) => void }) {
  const change = (name: string, value: unknown) => set(some(put(defaults, [name], value === '' ? undefined : value)))
  const metadata = (defaults.metadata ?? {}) as Json
  const [before] = useState(metadata) // on the way to "false" there is "fals"
  const [typed, setTyped] = useState(last.of === location.pathname ? last.text : '')
  const [isLeft, setLeft] = useState(true)
  const lines = (text: string, isPair: boolean) =>
    text.split('\n').filter(line => line.trim() && line.includes('=') === isPair)
  const read = (text: string) => valuesOf(lines(text, true).join('\n'), before)
  const text = same(read(typed), metadata) ? typed : linesOf(metadata) // as Undo has it, too
  const setMetadata = (next: string) => {
    last = { of: location.pathname, text: next }
    setTyped(next)
    change('metadata', some(read(next)))
  }
  return (
    <fieldset class="group">
      <legend>New contacts start with</legend>
      <p class="hint">
        Such as <code>{'{{trigger.data.name}}'}</code>.
      </p>
      {DEFAULTS.map(name => (
        <Field
          key={name}
          label={words(name)}
          value={typeof defaults[name] === 'string' ? defaults[name] : ''}
          set={text => change(name, text)}
          pointer={`/trigger/contactDefaults/${name}`}
        />
      ))}
      <Typed
        label="Tags"
        rows={2}
        text={Array.isArray(defaults.tags) ? defaults.tags.join('\n') : ''}
        pointer="/trigger/contactDefaults/tags"
        hint="One per line."
        read={text => {
          const tags = text
            .split('\n')
            .map(tag => tag.trim())
            .filter(Boolean)
          change('tags', tags.length ? tags : undefined)
        }}
      />
      <InUse text={text} set={setMetadata}>
        <div onFocusIn={() => setLeft(false)} onFocusOut={() => setLeft(true)}>
          <Field
            label="Custom fields"
            rows={2}
            value={text}
            set={setMetadata}
            pointer="/trigger/contactDefaults/metadata"
            {...{ [isLeft && lines(text, false).length ? 'wrong' : 'hint']: 'One per line: name = value.' }}
          />
        </div>
      </InUse>
    </fieldset>
  )
}
