// Topics: subjects of marketing, to which contacts agree one by one.
import { useEffect, useRef, useState } from 'preact/hooks'
import { api, byId, got, tagged, type Schemas } from '../api'
import { fields, useAct, useDraft, useListed, type Edited } from '../data'
import { useCan } from '../me'
import { page } from '../names'
import { Sought } from '../sought'
import { Check, Confirm, Field, Form, Refused, Section, Several, Table, Press, UPDATED } from '../ui'
import { Change } from '../unsaved'
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
  const field = fields(draft, change)
  return (
    <>
      <Field label="Name" required hint="Contacts see it on their preferences page." {...field('name')} />
      <Field label="Description" rows={2} {...field('description')} />
      <Several label="Channels" options={CHANNELS} {...field('channels')} />
      <Check label="Double opt-in: ask to confirm by a link" {...field('doubleOptIn')} />
      {isNew && <Check label="Default: for marketing without a topic" {...field('isDefault')} />}
    </>
  )
}

export function Topics() {
  const list = useListed(cursor => got(api.GET('/topics', page(cursor))), [])
  const [draft, change, forget] = useDraft('topic.new', EMPTY)
  const [changing, setChanging] = useState<{ value: Topic; tag: string } | null>(null)
  const opening = useAct()
  const may = useCan()('contacts:write')
  const open = async (id: string) => {
    const now = await tagged(api.GET('/topics/{id}', byId(id)))
    setChanging(now)
    return now.value
  }
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
            what="topics"
            of={found}
            none="No topics yet: marketing goes to everyone who has not unsubscribed from the channel."
            empty={may && 'Create one below to let contacts choose.'}
            columns={[
              [
                'Name',
                each => (
                  <>
                    {each.name}
                    {each.isDefault && <span class="soft"> (default)</span>}
                  </>
                ),
              ],
              ['Description', each => each.description ?? '–', 'wide'],
              ['Channels', each => each.channels.join(', ')],
              ['Double opt-in', each => (each.doubleOptIn ? 'yes' : 'no')],
              UPDATED,
              [
                'Actions',
                each =>
                  may && (
                    <span class="actions">
                      <Press act={opening} work={() => open(each.id)}>
                        Edit
                      </Press>
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
              ],
            ]}
          />
        )}
      </Sought>
      {may &&
        (changing ? (
          <ChangeTopic
            key={changing.value.id}
            of={{ stored: changing.value, tag: changing.tag, again: () => open(changing.value.id) }}
            done={() => {
              setChanging(null)
              void list.reload()
            }}
          />
        ) : (
          <Section title="New topic">
            <Form
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

function ChangeTopic({ of, done }: { of: Edited<Topic>; done: () => void }) {
  const { id, name } = of.stored
  const form = useRef<HTMLDivElement>(null)
  useEffect(() => form.current?.querySelector('input')?.focus(), [])
  return (
    <div ref={form}>
      <Section title={`Edit ${name}`}>
        <Change
          name={`topic.${id}`}
          of={of}
          drafted={drafted}
          save={(draft, headers) => got(api.PATCH('/topics/{id}', { ...byId(id), headers, body: written(draft) }))}
          done={done}
        >
          {(draft, change) => <Fields draft={draft} change={change} isNew={false} />}
        </Change>
      </Section>
    </div>
  )
}
