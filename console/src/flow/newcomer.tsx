// What a contact begins with that a trigger makes.
import { useState } from 'preact/hooks'
import { linesOf, valuesOf } from '../lines'
import { InUse } from '../offered'
import { Field } from '../ui'
import { DEFAULTS, Typed, words } from './form'
import { put, type Json } from './model'

export function NewContact({ defaults, set }: { defaults: Json; set: (defaults: Json | undefined) => void }) {
  const change = (name: string, value: unknown) => {
    const next = put(defaults, [name], value === '' ? undefined : value)
    set(Object.keys(next).length ? next : undefined)
  }
  const metadata = (defaults.metadata ?? {}) as Json
  const [before] = useState(metadata) // on the way to "false" there is "fals"
  const setMetadata = (text: string) => {
    const lines = text.split('\n').filter(line => line.includes('='))
    const now = valuesOf(lines.join('\n'), before)
    change('metadata', Object.keys(now).length ? now : undefined)
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
      <InUse text={linesOf(metadata)} set={setMetadata}>
        <Typed
          label="Custom fields"
          rows={2}
          text={linesOf(metadata)}
          pointer="/trigger/contactDefaults/metadata"
          hint="One per line: name = value"
          read={setMetadata}
        />
      </InUse>
    </fieldset>
  )
}
