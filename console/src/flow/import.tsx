// A flow from a file: tried without changing anything, then brought in as it was tried.
import { useRef, useState } from 'preact/hooks'
import { exactly, sent, type Schemas } from '../api'
import { fields, useAct, useDraft } from '../data'
import { Errors, First, moved, toFirst } from '../errors'
import { isObject, objectOf, same } from '../exact'
import { go } from '../router'
import { flowPath } from '../screens/flows'
import { Refusal } from '../session'
import { Button, Check, Facts, Field, Findings, JsonText, Rest, Screen, Section, Status } from '../ui'
import { Unsaved } from '../unsaved'
import { Changed } from './changed'
import type { Json } from './model'

type Imported = Schemas['Imported']
type FlowFile = {
  name: string
  definition: { trigger?: Json; steps?: unknown; graph?: unknown }
  templates?: Record<string, Json & { content: Json }>
  cases?: unknown
  casesGate?: boolean
}

const FILE = '/file',
  DEFINITION = '/definition',
  SECRET = '/signingSecret',
  SIGNED = '/trigger/signingSecret'
const EMPTY = { text: '', activate: false }

/** The line on which a value of a JSON text stands; the nearest that holds it where it is missing. */
export function lineOf(text: string, pointer: string): number {
  const wanted = pointer
    .split('/')
    .slice(1)
    .map(key => key.replaceAll('~1', '/').replaceAll('~0', '~'))
  const path: (string | number)[] = []
  let found = 0,
    deepest = -1,
    isKey = false
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === '}' || token === ']') {
      path.pop()
      continue
    }
    if (token === ',') {
      const last = path.at(-1)
      isKey = typeof last === 'string'
      if (typeof last === 'number') path[path.length - 1] = last + 1
      continue
    }
    if (token === ':') {
      isKey = false
      continue
    }
    if (isKey) path[path.length - 1] = JSON.parse(token) as string
    const depth = path.length
    if (depth > deepest && depth <= wanted.length && path.every((key, at) => String(key) === wanted[at])) {
      deepest = depth
      found = index
    }
    if (token === '{' || token === '[') {
      path.push(token === '{' ? '' : 0)
      isKey = token === '{'
    }
  }
  return text.slice(0, found).split('\n').length
}

const definitionIn = ({ name, definition, casesGate }: FlowFile) => ({
  ...definition,
  name,
  casesGate: casesGate ?? false,
  trigger: definition.trigger ?? {},
})
const isSigned = (text: string) => /"signed"\s*:\s*true/.test(text)

export function ImportFlow() {
  const [draft, change, forget, held] = useDraft('flow.import', EMPTY)
  const [secret, setSecret] = useState('')
  const [plan, setPlan] = useState<Imported | null>(null)
  const area = useRef<HTMLDivElement>(null)
  const act = useAct()
  const set = (changes: Partial<typeof EMPTY>) => {
    setPlan(null)
    act.clear()
    change(changes)
  }
  const send = async (mode: 'dry_run' | 'update', headers: Record<string, string> = {}) => {
    const body = {
      file: objectOf(draft.text, FILE),
      mode,
      activate: draft.activate,
      ...(secret && isSigned(draft.text) ? { signingSecret: secret } : {}),
    }
    return (await exactly<Imported>('/definitions/import', sent('POST', body, headers))).value
  }
  const tried = () => act.run(async () => setPlan(await send('dry_run')))
  /** Only what was tried: nothing is changed that somebody changed since. */
  const done = (from: Imported) =>
    act.run(async () => {
      const { id } = await send(
        'update',
        from.etagBefore ? { 'If-Match': from.etagBefore } : { 'If-None-Match': '*' },
      ).catch((error: Refusal) => {
        if (error.status !== 412) throw error
        setPlan(null)
        throw new Refusal(
          412,
          error.code,
          'Someone changed this flow since the preview. Nothing was imported: preview it again.',
        )
      })
      forget()
      go(flowPath(id!))
    })
  const toWrong = (isFine: boolean) => {
    if (!isFine) toFirst(area.current)
  }
  const show = (line: number) => {
    const box = area.current?.querySelector('textarea'),
      lines = draft.text.split('\n')
    const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0)
    box?.focus()
    box?.setSelectionRange(before, before + (lines[line - 1]?.length ?? 0))
  }
  const problem =
    act.problem &&
    moved(act.problem, at => (at === `${FILE}${DEFINITION}${SIGNED}` && isSigned(draft.text) ? SECRET : at))
  const inFile = problem?.errors.filter(each => each.pointer.startsWith(`${FILE}/`)) ?? []
  const place = { text: draft.text, show }
  return (
    <Screen title="Import a flow" lead="An exported file: one flow with the templates that it sends.">
      <div class="form" ref={area}>
        <Errors problem={problem}>
          <fieldset class="locked" disabled={act.busy}>
            <Unsaved
              of={{
                ...held,
                forget: () => {
                  setPlan(null)
                  forget()
                },
              }}
              label="Start over"
            />
            <div class="field">
              <label for="file">File</label>
              <input
                id="file"
                type="file"
                accept=".json,application/json"
                onChange={event => {
                  void event.currentTarget.files?.[0]?.text().then(text => {
                    setSecret('')
                    set({ text })
                  })
                }}
              />
            </div>
            <First
              problem={
                inFile.length
                  ? new Refusal(0, '', '', [{ pointer: FILE, message: 'It is wrong on these lines:' }])
                  : null
              }
            >
              <JsonText
                label="Content (JSON)"
                rows={12}
                value={draft.text}
                set={text => set({ text })}
                hint={inFile.length ? undefined : 'You can edit it here before importing.'}
                pointer={FILE}
              />
            </First>
            {inFile.length > 0 && (
              <ul class="plain">
                {inFile.map(each => (
                  <li key={each.pointer + each.message}>
                    <At pointer={each.pointer.slice(FILE.length)} {...place} />{' '}
                    <span class="wrong">{each.message}</span>
                  </li>
                ))}
              </ul>
            )}
            {isSigned(draft.text) && (
              <Field
                label="Signing secret"
                autocomplete="off"
                value={secret}
                set={next => {
                  setSecret(next)
                  setPlan(null)
                }}
                pointer={SECRET}
                hint="Senders sign with it; it is in no file. Empty: the current one, else the flow stays a draft."
              />
            )}
            <Check label="Activate it if nothing prevents it" {...fields(draft, set)('activate')} />
            <Rest />
          </fieldset>
        </Errors>
        <p class="buttons">
          <Button class="primary" disabled={!draft.text.trim() || act.busy} onClick={() => void tried().then(toWrong)}>
            Preview import
          </Button>
          <Button disabled={!plan || act.busy} onClick={() => void (plan && done(plan).then(toWrong))}>
            Import now
          </Button>{' '}
          {!plan && <span class="hint">after the preview</span>}
        </p>
      </div>
      {plan && <Plan of={plan} {...place} />}
    </Screen>
  )
}

type Place = { text: string; show: (line: number) => void }

function At({ pointer, text, show }: Place & { pointer: string }) {
  const line = lineOf(text, pointer)
  return (
    <>
      <Button class="plain" onClick={() => show(line)}>
        Line {line}
      </Button>{' '}
      <code>{pointer}</code>
    </>
  )
}

/** What of a template would be another. */
function partsChanged(before: FlowFile | null, after: FlowFile, key: string): string {
  const [old, now] = [before, after].map(file => {
    const { content, ...rest } = file?.templates?.[key] ?? { content: {} }
    return { ...rest, ...content } as Json
  })
  return Object.keys({ ...old, ...now })
    .filter(name => !same(old![name], now![name]))
    .join(', ')
}

function Plan({ of, ...place }: Place & { of: Imported }) {
  const [before, after] = [of.before as FlowFile | null, of.file as FlowFile]
  const isActive = of.state === 'ACTIVE'
  const hasOtherCases = isObject(before) && !same(before.cases ?? [], after.cases ?? [])
  return (
    <Section title="Preview">
      <Facts
        of={[
          ['Flow', of.name],
          ['Key', <code>{of.key}</code>],
          ['Result', of.action],
          ['State', <Status value={of.state} />],
        ]}
      />
      {before && of.action === 'updated' && isActive && (
        <p class="note">It is active: changes take effect at once. Runs in progress stay on their version.</p>
      )}
      {of.findings.length > 0 && (
        <>
          <h3>Findings</h3>
          <Findings of={of.findings} at={one => <At pointer={DEFINITION + one.pointer} {...place} />} />
        </>
      )}
      {of.templates.length > 0 && (
        <>
          <h3>Templates</h3>
          <ul class="plain">
            {of.templates.map(one => (
              <li key={one.key}>
                {one.name} <code>{one.key}</code>: {one.action}
                {one.action === 'updated' &&
                  before?.templates?.[one.key] &&
                  ` (${partsChanged(before, after, one.key)})`}
              </li>
            ))}
          </ul>
        </>
      )}
      {before && (
        <>
          <h3>Changes in the flow</h3>
          <Changed before={definitionIn(before)} after={definitionIn(after)} />
          {hasOtherCases && <p>Its cases change.</p>}
        </>
      )}
    </Section>
  )
}
