// Templates: what messages say, with a preview through the renderer that sends them.
import { useRef, useState } from 'preact/hooks'
import { api, byId, got, settled, tagged, type Schemas } from '../api'
import { fields, handOver, useAct, useDraft, useLoaded, useStored, useTyped, type Edited } from '../data'
import { CHANGED, Days } from '../days'
import { errorsIn, First, refusalOf } from '../errors'
import { objectOf, pretty, same } from '../exact'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import { UsedBy, Whom, getting, meant, options, useTopics } from '../names'
import { go, useLocation } from '../router'
import { Refusal } from '../session'
import {
  Button,
  Confirm,
  Facts,
  Field,
  Findings,
  Form,
  JsonText,
  Link,
  Opened,
  Screen,
  Section,
  Shown,
  Views,
  UPDATED,
} from '../ui'
import { Unsaved } from '../unsaved'
import { Approved } from './messages'
import { Code } from '../code'
import { Paths, useLastBox } from '../paths'
import { Preview } from '../preview'
import { TestMail } from '../test_mail'
import { CHANNELS } from '../words'

type Stored = Schemas['Template']
type Written = Schemas['WritableTemplate']
/** A text that was checked, and what was found. */
type Checked = Schemas['TemplateCheck'] & { template: Written }
const CATEGORIES = [
  ['transactional', 'transactional: about something the contact did'],
  ['marketing', 'marketing: with a way to unsubscribe'],
] as const
const PARTS: Record<string, readonly (readonly [string, string, number])[]> = {
  email: [
    ['subject', 'Subject', 0],
    ['preheader', 'Preheader', 0],
    ['html', 'HTML', 16],
    ['text', 'Text (empty: from the HTML)', 6],
    ['fromName', 'Sender', 0],
    ['replyTo', 'Reply to', 0],
  ],
  sms: [['text', 'Text', 6]],
  whatsapp: [
    ['text', 'Text', 6],
    ['contentSid', 'Content SID of the approved template', 0],
  ],
}
const TITLES: Record<string, string> = {
  html: 'HTML',
  fromName: 'sender',
  replyTo: 'reply to',
  contentSid: 'content SID',
}
const HINTS: Record<string, string> = {
  preheader: 'Mail programs show it beside the subject.',
  fromName: 'Empty: the workspace’s.',
  replyTo: 'Empty: the workspace’s.',
}
const NONE: Stored['findings'] = []
const NO_VARIABLES: string[] = []

/** An event that has a value at each path that the template reads. */
export function sample(variables: readonly string[]): string {
  const root: Record<string, unknown> = {}
  for (const variable of variables.filter(each => each.startsWith('trigger.')).sort()) {
    const keys = variable
      .slice('trigger.'.length)
      .split(/[.[\]]+/)
      .filter(Boolean)
    let place = root as Record<string, unknown>
    keys.forEach((key, index) => {
      const next = keys[index + 1]
      if (next === undefined) place[key] ??= `(${key})`
      else {
        if (typeof place[key] !== 'object') place[key] = /^\d+$/.test(next) ? [] : {}
        place = place[key] as Record<string, unknown>
      }
    })
  }
  return pretty(root)
}

export const Templates = () => (
  <ListScreen
    title="Templates"
    lead="What messages say, with places that are filled in for each contact."
    one="template"
    needs="templates:write"
    filters={<Days of={CHANGED} />}
    of={useNarrowed('/templates', asked => api.GET('/templates', { params: { query: asked } }))}
    columns={[
      ['Name', each => <Link to={`/templates/${each.id}`}>{each.name}</Link>],
      ['Channel', each => each.channel],
      ['Category', each => each.category],
      ['Version', each => each.version],
      UPDATED,
    ]}
  />
)

export const NewTemplate = () => <Editor />

export const Template = ({ id }: { id: string }) => (
  <Opened title="Template" of={useStored(() => tagged(api.GET('/templates/{id}', byId(id))), [id])}>
    {edited => <Editor {...edited} />}
  </Opened>
)

/** The parts stand beside its name: no part is called so. Variables are pairs, as JSON. */
type Draft = { name: string; channel: string; category: string; topicId: string } & Record<string, string>

const drafted = ({ name, channel, category, topicId, content }: Stored): Draft => ({
  name,
  channel,
  category,
  topicId: topicId ?? '',
  variables: kept(Object.entries(variablesOf(content))),
  ...Object.fromEntries(
    (PARTS[channel] ?? []).map(([part]) => [part, typeof content[part] === 'string' ? content[part] : '']),
  ),
})

type Pair = readonly [string, string]
const variablesOf = (content: Stored['content'] = {}) => {
  const given = content.variables
  return typeof given === 'object' ? given : {}
}
const kept = (pairs: readonly Pair[]) => (pairs.length ? JSON.stringify(pairs) : '')
const pairsOf = (draft: Draft): Pair[] =>
  draft.channel === 'whatsapp' && draft.variables ? (JSON.parse(draft.variables) as Pair[]) : []

function Editor({ stored, tag, again }: Partial<Edited<Stored>>) {
  const { query } = useLocation()
  const initial: Draft = stored
    ? drafted(stored)
    : { name: '', channel: query.get('channel') ?? 'email', category: 'transactional', topicId: '' }
  const [draft, change, forget, held] = useDraft<Draft>(`template.${stored?.id ?? 'new'}`, initial, tag)
  const field = fields(draft, change)
  const act = useAct()
  const box = useLastBox()
  const may = useCan()('templates:write')
  const parts = PARTS[draft.channel] ?? []
  const isChanged = !same(draft, initial)
  const given = pairsOf(draft).filter(([name]) => name)
  const whole = {
    ...stored?.content,
    ...Object.fromEntries(parts.map(([name]) => [name, draft[name]])),
    variables: given.length ? Object.fromEntries(given) : '',
  }
  const template = {
    name: 'Not saved',
    channel: draft.channel,
    category: draft.category,
    content: Object.fromEntries(Object.entries(whole).filter(([, part]) => part)),
  } as Written
  const checked = useTyped(
    async (): Promise<Checked> => ({
      template,
      ...(await got(
        api.POST('/templates/check', {
          body: { channel: template.channel, category: template.category, content: template.content },
        }),
      )),
    }),
    [JSON.stringify(template)],
  )
  const sound = useRef<Checked | null>(null)
  if (checked.value && !errorsIn(checked.value.findings).length) sound.current = checked.value
  const save = async () => {
    const twice = given.find(([name], index) => given.findIndex(other => other[0] === name) < index)
    if (twice)
      throw new Refusal(422, 'invalid', '', [
        { pointer: variableAt(twice[0]), message: 'Another variable has this name.' },
      ])
    const content: Record<string, unknown> = {
      ...(stored?.content ?? {}),
      ...Object.fromEntries(parts.map(([name]) => [name, draft[name] || (stored ? null : undefined)])),
    }
    const gone = Object.fromEntries(Object.keys(variablesOf(stored?.content)).map(name => [name, null]))
    if (draft.channel === 'whatsapp')
      content.variables = given.length ? { ...gone, ...Object.fromEntries(given) } : stored ? null : undefined
    const body = { name: draft.name, category: draft.category, topicId: draft.topicId || null, content }
    if (stored && again) {
      const change = got(
        api.PATCH('/templates/{id}', {
          ...byId(stored.id),
          headers: { 'If-Match': held.tag },
          body: body as Schemas['TemplatePatch'],
        }),
      )
      await settled(change, async () => same(drafted(await again()), draft))
      forget(drafted(await again()))
    } else {
      const made = await got(api.POST('/templates', { body: { ...body, channel: draft.channel } as Written }))
      forget(initial, `template.${made.id}`)
      handOver('preview.new', {})
      go(`/templates/${made.id}`)
    }
  }
  const findings = stored || isChanged ? (checked.value?.findings ?? stored?.findings ?? NONE) : NONE
  const isAtField = (each: Stored['findings'][number]) =>
    parts.some(([name, , rows]) => each.pointer === `/content/${name}` && (rows || each.severity === 'error')) ||
    (each.severity === 'error' && given.some(([name]) => each.pointer === variableAt(name)))
  const others = findings.filter(each => !isAtField(each))
  const variables = checked.value?.variables ?? NO_VARIABLES
  /** What a refusal says of the text takes the place of what was found in it. */
  const submit = () =>
    save().catch((error: unknown) => {
      const errors =
        error instanceof Refusal
          ? error.errors.map(each => ({ ...each, severity: 'error' as const, code: 'invalid' })).filter(isAtField)
          : []
      if (errors.length) checked.set({ template, variables, findings: errors })
      throw error
    })
  return (
    <Screen
      title={stored?.name ?? 'New template'}
      id={stored?.id}
      actions={
        stored &&
        may && (
          <>
            {stored.channel === 'email' && (
              <TestMail send={to => got(api.POST('/messages/test-email', { body: { to, templateId: stored.id } }))}>
                <p>The saved template is sent, marked as a test.</p>
              </TestMail>
            )}
            <Confirm
              label="Delete"
              danger
              title="Delete this template?"
              act={async () => {
                await got(api.DELETE('/templates/{id}', byId(stored.id)))
                forget()
                go('/templates')
              }}
            >
              <p>It cannot be deleted while something uses it; “Used by” says what does.</p>
            </Confirm>
          </>
        )
      }
    >
      {may && <Unsaved of={held} />}
      <div class="beside">
        {stored && !may ? (
          <Texts of={stored} />
        ) : (
          <div onFocusIn={box.onFocusIn}>
            <Form
              act={act}
              label={stored ? 'Save' : 'Create template'}
              success={held.isTyped ? '' : 'Saved.'}
              submit={submit}
            >
              <Field label="Name" required {...field('name')} />
              <div class="columns">
                {!stored && <Field label="Channel" {...field('channel')} options={Object.entries(CHANNELS)} />}
                <Field
                  label="Category"
                  value={draft.category}
                  set={category => change({ category, topicId: '' })}
                  options={CATEGORIES}
                  pointer="/category"
                />
                {draft.category === 'marketing' && <Topic draft={draft} set={topicId => change({ topicId })} />}
              </div>
              <First problem={refusalOf(findings)}>
                {parts.map(([name, label, rows]) => {
                  const control = {
                    label,
                    value: draft[name] ?? '',
                    set: (text: string) => {
                      act.clear()
                      change({ [name]: text })
                    },
                    pointer: `/content/${name}`,
                  }
                  return rows ? (
                    <Code key={name} {...control} rows={rows} isMarkup={name === 'html'} findings={findings} />
                  ) : (
                    <Field key={name} {...control} hint={HINTS[name]} />
                  )
                })}
                {draft.channel === 'whatsapp' && (
                  <Variables
                    of={pairsOf(draft)}
                    set={pairs => {
                      act.clear()
                      change({ variables: kept(pairs) })
                    }}
                  />
                )}
              </First>
              <Findings of={others} />
              {variables.length > 0 && (
                <p class="hint">
                  Uses{' '}
                  {variables.map((name, index) => (
                    <>
                      {index > 0 && ', '}
                      <code>{name}</code>
                    </>
                  ))}
                  .
                </p>
              )}
            </Form>
            <Paths last={box.last} />
          </div>
        )}
        <div>
          {checked.problem && (
            <p class="note">
              Your changes could not be checked: {checked.problem.message}
              {sound.current && ' The preview shows the text before them.'}{' '}
              <Button small onClick={() => void checked.reload()}>
                Check again
              </Button>
            </p>
          )}
          {sound.current ? (
            <Rendered of={sound.current} id={stored?.id ?? 'new'} isBehind={sound.current !== checked.value} />
          ) : (
            <p class="hint">The preview appears once nothing is missing.</p>
          )}
          {stored && (
            <UsedBy
              id={stored.id}
              nothing="Nothing yet. Flows and broadcasts can send it."
              read={() => got(api.GET('/templates/{id}/uses', byId(stored.id)))}
            />
          )}
        </div>
      </div>
    </Screen>
  )
}

/** What it says, for who may not change it. */
function Texts({ of }: { of: Stored }) {
  const parts = (PARTS[of.channel] ?? []).filter(([part]) => part !== 'contentSid' && of.content[part])
  return (
    <div>
      <Facts
        of={[
          ['Channel', of.channel],
          ['Category', of.category],
        ]}
      />
      <Approved content={of.content} />
      {parts.map(([part, label]) => (
        <Section key={part} title={label}>
          <pre tabIndex={0}>{of.content[part] as string}</pre>
        </Section>
      ))}
    </div>
  )
}

const variableAt = (name: string) => `/content/variables/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`

/** The least number that no variable has as its name. */
function free(pairs: readonly Pair[]): string {
  let number = 1
  while (pairs.some(([name]) => name === String(number))) number++
  return String(number)
}

/** What WhatsApp puts in the places of the template that it approved. */
function Variables({ of, set }: { of: readonly Pair[]; set: (pairs: readonly Pair[]) => void }) {
  const at = (index: number, pair: Pair) => set(of.map((old, place) => (place === index ? pair : old)))
  return (
    <fieldset class="group">
      <legend>Variables of the approved template</legend>
      {of.map(([name, value], index) => (
        <div class="columns" key={index}>
          <Field
            label={`Name of variable ${index + 1}`}
            value={name}
            set={to => at(index, [to.trim(), value])}
            placeholder="1"
          />
          <Field
            label={`Variable ${name || index + 1}`}
            value={value}
            set={to => at(index, [name, to])}
            pointer={variableAt(name)}
            placeholder="{{contact.firstName}}"
          />
          <p class="buttons">
            <Button
              small
              aria-label={`Remove variable ${name || index + 1}`}
              onClick={() => set(of.filter((_, place) => place !== index))}
            >
              Remove
            </Button>
          </p>
        </div>
      ))}
      <p class="buttons">
        <Button small onClick={() => set([...of, [free(of), '']])}>
          Add variable
        </Button>
      </p>
    </fieldset>
  )
}

function Topic({ draft, set }: { draft: Draft; set: (topicId: string) => void }) {
  const all = useTopics(draft.topicId)
  const fitting =
    all.rows?.filter(each => each.id === draft.topicId || each.channels.some(channel => channel === draft.channel)) ??
    null
  return (
    <Field
      label="Topic"
      value={draft.topicId}
      set={set}
      options={[['', 'none'], ...options({ ...all, rows: fitting })]}
      growing={all}
      pointer="/topicId"
      hint={
        <>
          {getting(all, draft.topicId)} <Link to="/settings/topics">Topics</Link>
        </>
      }
    />
  )
}

const WIDTHS = { '360': '360 px', '700': '700 px' }

function Rendered({ of, id, isBehind }: { of: Checked; id: string; isBehind: boolean }) {
  const [{ contactId, event }, change] = useDraft(`preview.${id}`, { contactId: '', event: null as string | null }) // until then an event that has whatever the text reads
  const [width, setWidth] = useState<keyof typeof WIDTHS>('700')
  const [wanted, setWanted] = useState<{ contactId: string | null; trigger: Record<string, unknown> | null }>({
    contactId: null,
    trigger: null,
  })
  const act = useAct()
  const body = {
    template: of.template,
    contactId: wanted.contactId,
    trigger: wanted.trigger ?? objectOf(sample(of.variables), '/trigger'),
  }
  const shown = useLoaded(() => got(api.POST('/templates/preview', { body })), [JSON.stringify(body)], undefined, 0)
  const show = async () =>
    setWanted({ trigger: event === null ? null : objectOf(event, '/trigger'), contactId: await meant(contactId) })
  return (
    <Section title="Preview">
      {isBehind && <p class="note">Your text has an error, which is marked. This is how it was without it.</p>}
      <Form act={act} label="Update preview" submit={show}>
        <First problem={act.problem ?? shown.problem}>
          <Whom value={contactId} set={contactId => change({ contactId })} hint="Empty: nobody in particular." />
        </First>
        <JsonText
          label="Event (JSON)"
          rows={5}
          value={event ?? sample(of.variables)}
          set={event => change({ event })}
          pointer="/trigger"
        />
      </Form>
      {!act.problem && (
        <Shown of={shown}>
          {parts => (
            <>
              {Object.entries(parts).map(([name, part]) => (
                <div key={name} class="part">
                  <h3>{TITLES[name] ?? name}</h3>
                  {part.error ? (
                    <p class="wrong">{part.error}</p>
                  ) : name === 'html' ? (
                    <>
                      <Views label="Width" of={WIDTHS} value={width} set={setWidth} />
                      <Preview of={{ html: part.rendered ?? '' }} width={Number(width)} />
                    </>
                  ) : (
                    <pre tabIndex={0}>{part.rendered}</pre>
                  )}
                  {(part.missing?.length ?? 0) > 0 && <p class="hint">No value for {part.missing?.join(', ')}.</p>}
                </div>
              ))}
            </>
          )}
        </Shown>
      )}
    </Section>
  )
}
