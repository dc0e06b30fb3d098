// Topics: subjects of marketing, to which contacts agree one by one.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { useAct, useDraft, useListed } from '../data'
import { useCan } from '../me'
import { MOST, Sought } from '../sought'
import { Check, Confirm, Field, Form, Refused, Section, Several, Table, When } from '../ui'
import { Unsaved } from '../unsaved'
import { CHANNELS } from '../words'

type Topic = Schemas['TopicShape']
const EMPTY = { name: '', description: '', channels: ['email'] as string[], doubleOptIn: false, isDefault: false }
type Draft = typeof EMPTY

const drafted = ({ name, description, channels, doubleOptIn, isDefault }: Topic): Draft => ({
  name,
  description: description ?? '',
  channels,
  doubleOptIn,
  isDefault,
})
const written = (draft: Draft) => ({ ...draft, description: draft.description || null }) as Schemas['WritableTopic']

function Fields({ draft, change, isNew }: { draft: Draft; change: (changes: Partial<Draft>) => void; isNew: boolean }) {
  return (
    <>
      <Field
        label="Name"
        required
        hint="Contacts see it on their preferences page."
        value={draft.name}
        set={name => change({ name })}
        pointer="/name"
      />
      <Field
        label="Description"
        rows={2}
        value={draft.description}
        set={description => change({ description })}
        pointer="/description"
      />
      <Several
        label="Channels"
        options={CHANNELS}
        chosen={draft.channels}
        set={channels => change({ channels })}
        pointer="/channels"
      />
      <Check
        label="Double opt-in: ask to confirm by a link"
        value={draft.doubleOptIn}
        set={doubleOptIn => change({ doubleOptIn })}
        pointer="/doubleOptIn"
      />
      {isNew && (
        <Check
          label="Default: for marketing without a topic"
          value={draft.isDefault}
          set={isDefault => change({ isDefault })}
          pointer="/isDefault"
        />
      )}
    </>
  )
}

export function Topics() {
  const list = useListed(cursor => got(api.GET('/topics', { params: { query: { cursor, limit: MOST } } })), [])
  const [draft, change, forget] = useDraft('topic.new', EMPTY)
  const [changing, setChanging] = useState<{ value: Topic; tag: string } | null>(null)
  const act = useAct()
  const opening = useAct()
  const may = useCan()('contacts:write')
  const open = async (id: string) => setChanging(await tagged(api.GET('/topics/{id}', byId(id))))
  return (
    <>
      <Refused problem={opening.problem} />
      <Sought
        of={list}
        text={each =>
          [
            each.name,
            each.isDefault && 'default',
            each.description,
            ...each.channels,
            each.doubleOptIn ? 'yes' : 'no',
          ].join(' ')
        }
      >
        {found => (
          <Table<Topic>
            caption="Topics"
            of={found}
            id={each => each.id}
            empty={<p>No topics yet: marketing goes to everyone who has not unsubscribed from the channel.</p>}
            columns={[
              {
                name: 'Name',
                show: each => (
                  <>
                    {each.name}
                    {each.isDefault && <span class="soft"> (default)</span>}
                  </>
                ),
              },
              { name: 'Description', class: 'wide', show: each => each.description ?? '–' },
              { name: 'Channels', show: each => each.channels.join(', ') },
              { name: 'Double opt-in', show: each => (each.doubleOptIn ? 'yes' : 'no') },
              { name: 'Updated', show: each => <When at={each.updatedAt} /> },
              {
                name: 'Actions',
                show: each =>
                  may && (
                    <span class="actions">
                      <button
                        type="button"
                        disabled={opening.busy}
                        onClick={() => void opening.run(() => open(each.id))}
                      >
                        Edit
                      </button>
                      <Confirm
                        label="Delete"
                        danger
                        title={`Delete ${each.name}?`}
                        act={async () => {
                          await got(api.DELETE('/topics/{id}', byId(each.id)))
                          setChanging(null)
                          await list.reload()
                        }}
                      >
                        <p>
                          Contacts’ answers about it are deleted. It cannot be deleted while templates, flows, segments
                          or broadcasts use it.
                        </p>
                      </Confirm>
                    </span>
                  ),
              },
            ]}
          />
        )}
      </Sought>
      {may &&
        (changing ? (
          <ChangeTopic
            key={changing.value.id}
            of={changing}
            again={() => open(changing.value.id)}
            done={() => {
              setChanging(null)
              void list.reload()
            }}
          />
        ) : (
          <Section title="New topic">
            <Form
              act={act}
              label="Create topic"
              submit={async () => {
                await got(api.POST('/topics', { body: written(draft) }))
                forget()
                await list.reload()
              }}
            >
              <Fields draft={draft} change={change} isNew />
            </Form>
          </Section>
        ))}
    </>
  )
}

function ChangeTopic({
  of: { value, tag },
  again,
  done,
}: {
  of: { value: Topic; tag: string }
  again: () => Promise<void>
  done: () => void
}) {
  const [draft, change, forget, held] = useDraft(`topic.${value.id}`, drafted(value), tag)
  const act = useAct()
  const path = byId(value.id)
  const form = useRef<HTMLDivElement>(null)
  useEffect(() => form.current?.querySelector('input')?.focus(), [])
  return (
    <div ref={form}>
      <Section title={`Edit ${value.name}`}>
        <Form
          act={act}
          label="Save"
          extra={
            <button
              type="button"
              onClick={() => {
                forget()
                done()
              }}
            >
              Cancel
            </button>
          }
          submit={async () => {
            await settled(
              got(api.PATCH('/topics/{id}', { ...path, headers: { 'If-Match': held.tag }, body: written(draft) })),
              async () => {
                const now = await got(api.GET('/topics/{id}', path))
                await again()
                return JSON.stringify(drafted(now)) === JSON.stringify(draft)
              },
            )
            if (forget(draft)) done()
            else await again()
          }}
        >
          <Unsaved of={held} />
          <Fields draft={draft} change={change} isNew={false} />
        </Form>
      </Section>
    </div>
  )
}
