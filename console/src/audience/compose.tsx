// A broadcast while it is written: to whom, what, about which topic, and when.
import { api, byId, exactly, got, settled } from '../api'
import { fields, useDraft, useStored, type Edited, type Listed } from '../data'
import { local } from '../days'
import { pretty, same } from '../exact'
import { getting, options, Tags, TAGS, useSegments, useTemplates, useTopics } from '../names'
import { useCan } from '../me'
import { go, useFilter } from '../router'
import { Field, Form, Link, NotAllowed, Opened, Screen, Section, plural } from '../ui'
import { Unsaved } from '../unsaved'
import { mayChange, type Stored } from './broadcasts'
import { BLANK, FilterField, FoundShown, filterOf, useFound } from './filter'

const WAYS = [
  ['segment', 'a segment'],
  ['tag', 'everyone with a tag'],
  ['filter', 'its own filter'],
] as const

const drafted = (stored?: Stored, segmentId = '') => ({
  name: stored?.name ?? '',
  way: !stored || stored.segmentId ? 'segment' : stored.tag ? 'tag' : 'filter',
  segmentId: stored?.segmentId ?? segmentId,
  tag: stored?.tag ?? '',
  filter: stored?.filter ? pretty(stored.filter) : BLANK,
  templateId: stored?.templateId ?? '',
  topicId: stored?.topicId ?? '',
  sendAt: local(stored?.sendAt ?? null),
  localTime: stored?.localTime ?? '',
  perMinute: stored?.perMinute ? String(stored.perMinute) : '',
})

export function EditBroadcast({ id }: { id: string }) {
  const may = useCan()
  return (
    <Opened title="Broadcast" of={useStored(() => exactly<Stored>(`/broadcasts/${encodeURIComponent(id)}`), [id])}>
      {edited => (mayChange(may, edited.stored) ? <Compose {...edited} /> : <NotAllowed />)}
    </Opened>
  )
}

export const NewBroadcast = () => <Compose />

function Compose({ stored, tag, again }: Partial<Edited<Stored>>) {
  const initial = drafted(stored, useFilter('segment'))
  const [draft, change, forget, held] = useDraft(`broadcast.${stored?.id ?? 'new'}`, initial, tag)
  const known = {
    templates: useTemplates(draft.templateId),
    topics: useTopics(draft.topicId),
    segments: useSegments(draft.segmentId),
  }
  const template = known.templates.rows?.find(each => each.id === draft.templateId)
  const count = known.segments.rows?.find(each => each.id === draft.segmentId)?.count
  const save = async () => {
    const { name, way, templateId } = draft
    const body = {
      name,
      templateId,
      segmentId: way === 'segment' ? draft.segmentId || null : null,
      tag: way === 'tag' ? draft.tag || null : null,
      filter: way === 'filter' ? filterOf(draft.filter) : null,
      topicId: template?.category === 'transactional' ? null : draft.topicId || null,
      localTime: draft.localTime || null,
      perMinute: draft.perMinute ? Number(draft.perMinute) : null,
      sendAt:
        stored && draft.sendAt === initial.sendAt
          ? stored.sendAt
          : draft.sendAt
            ? new Date(draft.sendAt).toISOString()
            : null,
    }
    if (!stored || !again) {
      const made = await got(api.POST('/broadcasts', { body }))
      return go(`/broadcasts/${made.id}${forget(initial, `broadcast.${made.id}`) ? '' : '/edit'}`)
    }
    const { id } = stored
    await settled(
      got(api.PATCH('/broadcasts/{id}', { ...byId(id), headers: { 'If-Match': held.tag }, body })),
      async () => same(drafted(await again()), draft),
    )
    if (forget(draft)) go(`/broadcasts/${id}`)
    else await again()
  }
  const field = fields(draft, change)
  const choice = (of: Listed<{ id: string; name: string }>, none = 'choose one') => ({
    options: [['', none] as const, ...options(of)],
    growing: of,
  })
  return (
    <Screen title={stored ? `Edit ${stored.name}` : 'New broadcast'} id={stored?.id}>
      <Unsaved of={held} {...(stored ? {} : { label: 'Start over' })} />
      {stored?.state === 'SCHEDULED' && (
        <p class="note">It is scheduled. Saving a change makes it a draft again, which has to be scheduled again.</p>
      )}
      <Form label={stored ? 'Save' : 'Create broadcast'} submit={save}>
        <Field label="Name" required hint="Contacts do not see it." {...field('name')} />
        <Field label="Audience" {...field('way')} options={WAYS} />
        {draft.way === 'segment' && (
          <Field
            label="Segment"
            required
            {...choice(known.segments)}
            hint={
              known.segments.rows?.length === 0 ? (
                <Link to="/segments/new">Create a segment first</Link>
              ) : (
                count != null && `${plural(count, 'contact')}.`
              )
            }
            {...field('segmentId')}
          />
        )}
        {draft.way === 'tag' && (
          <>
            <Field label="Tag" required list={TAGS} {...field('tag')} />
            <Tags />
          </>
        )}
        {draft.way === 'filter' && <OwnFilter text={draft.filter} set={filter => change({ filter })} />}
        <Field
          label="Template"
          required
          {...choice(known.templates)}
          hint={
            template ? (
              `Via ${template.channel}, ${template.category}.`
            ) : known.templates.rows?.length === 0 ? (
              <Link to="/templates/new">Create a template first</Link>
            ) : (
              'The template sets the channel.'
            )
          }
          {...field('templateId')}
        />
        {template?.category === 'marketing' && (
          <Field
            label="Topic"
            {...choice(known.topics, template.topicId ? 'the template’s' : 'none')}
            hint={getting(known.topics, draft.topicId || template.topicId)}
            {...field('topicId')}
          />
        )}
        <div class="columns">
          <Field
            label="Send at"
            type="datetime-local"
            hint={`In your time zone. Empty: once it is scheduled.${draft.localTime && ' Where the local time has passed by then, it is sent a day later.'}`}
            {...field('sendAt')}
          />
          <Field
            label="Contact’s local time"
            type="time"
            hint="Empty: at once, wherever they are."
            {...field('localTime')}
          />
          <Field
            label="Messages per minute"
            type="number"
            min="1"
            hint="At most. Empty: as fast as allowed."
            {...field('perMinute')}
          />
        </div>
        <p class="hint">Nothing is sent yet: next you see who would get it, and a preview.</p>
      </Form>
    </Screen>
  )
}

function OwnFilter({ text, set }: { text: string; set: (text: string) => void }) {
  const found = useFound(text, null)
  return (
    <>
      <FilterField text={text} set={set} problem={found.problem} />
      <Section title="Matching contacts">
        <FoundShown {...found} />
      </Section>
    </>
  )
}
