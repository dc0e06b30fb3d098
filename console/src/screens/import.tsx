// Contacts from a file: which column is what, tried without changing anything, then done.
import { useRef, useState } from 'preact/hooks'
import { raw } from '../api'
import { useAct, useDraft } from '../data'
import { useTopics } from '../names'
import { Errors, toFirst } from '../errors'
import { Refusal, unreachable } from '../session'
import { Button, Check, Facts, Field, Link, Rest, Screen, Section, plural } from '../ui'

// --- its columns ---

const OURS = ['email', 'phone', 'firstName', 'lastName', 'timezone', 'locale', 'id', 'tags'] as const
const BEGINNING = 65_536 // bytes that the header is looked for in
const MOST_COLUMNS = 60 // that are offered; the rest is read as it is called

const folded = (name: string) => name.toLowerCase().replace(/[\s_-]/g, '')
const known = (name: string) =>
  OURS.find(one => folded(one) === folded(name)) ??
  (/^(metadata|subscriptions|topics)\./.test(name.trim()) ? name.trim() : '')

/** The cells of the first row of a CSV file: between commas, semicolons or tabs, with or without quotation marks. */
export function header(text: string): string[] {
  const cells: string[] = []
  const bare = text.replace(/"(?:[^"]|"")*"/g, '').split(/\r?\n/)[0] ?? ''
  const [separator] = [',', ';', '\t'].sort((a, b) => bare.split(b).length - bare.split(a).length)
  let cell = '',
    isQuoted = false
  for (let at = 0; at < text.length; at++) {
    const letter = text[at]!
    if (isQuoted && letter === '"' && text[at + 1] === '"') {
      cell += '"'
      at++
    } else if (letter === '"') isQuoted = !isQuoted
    else if (!isQuoted && (letter === '\n' || letter === '\r')) break
    else if (!isQuoted && letter === separator) {
      cells.push(cell)
      cell = ''
    } else cell += letter
  }
  return [...cells, cell].filter(one => one.trim())
}

async function columnsOf(file: File): Promise<string[]> {
  const bytes = new Uint8Array(await file.slice(0, BEGINNING).arrayBuffer())
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)
  return header(new TextDecoder(isWide ? (bytes[0] === 0xff ? 'utf-16le' : 'utf-16be') : 'utf-8').decode(bytes))
}

/** Each column of the file, and as what it is read. */
function Mapping({
  columns,
  given,
  set,
}: {
  columns: readonly string[]
  given: Record<string, string>
  set: (given: Record<string, string>) => void
}) {
  const topics = useTopics()
  const answers = (topics.rows ?? []).flatMap(({ id, name, channels }) =>
    channels.map((channel): [string, string] => [`topics.${id}.${channel}`, `answers about ${name}, ${channel}`]),
  )
  return (
    <fieldset class="group">
      <legend>Columns of the file</legend>
      <div class="columns">
        {columns.slice(0, MOST_COLUMNS).map(name => {
          const usual = known(name)
          const own = `metadata.${name.trim()}`
          const others = [...OURS.map((one): [string, string] => [one, one]), ...answers].filter(
            ([one]) => one !== usual,
          )
          const read = answers.find(([one]) => one === usual)?.[1] ?? usual
          const options: [string, string][] = [
            ['=', usual ? `import as ${read}` : 'as chosen below'],
            ...others,
            [own, `custom field: ${name.trim()}`],
            ['', 'skip it'],
          ]
          return (
            <Field
              key={name}
              label={name}
              value={given[name] ?? '='}
              options={options}
              growing={topics}
              pointer={`?columns[${name}]`}
              set={to => {
                const { [name]: _, ...rest } = given
                set(to === '=' ? rest : { ...rest, [name]: to })
              }}
            />
          )
        })}
      </div>
      {columns.length > MOST_COLUMNS && (
        <p class="hint">and {columns.length - MOST_COLUMNS} more, read by their names.</p>
      )}
    </fieldset>
  )
}

// --- what is done with it ---

type Line = { type: 'error'; row: number; pointer: string; message: string } | Totals
type Totals = {
  type: 'progress' | 'totals' | 'problem'
  created: number
  updated: number
  unchanged: number
  failed: number
  dryRun: boolean
  detail?: string
}

const MOST_ROWS = 50
const SOURCE = '?consentSource'
const rows = ({ created, updated, unchanged, failed }: Totals) => created + updated + unchanged + failed

/** The lines of an answer as they come. */
async function* linesOf(answer: Response): AsyncGenerator<Line> {
  const pieces = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await pieces.read().catch(() => {
      throw unreachable()
    })
    const whole = (rest + (value ?? '')).split('\n')
    rest = done ? '' : whole.pop()!
    for (const line of whole) if (line) yield JSON.parse(line)
    if (done) return
  }
}

const CHOICES = { unknown: 'refuse', starts: false, source: '', evidence: '', given: {} as Record<string, string> }

export function Import() {
  const [file, setFile] = useState<File | null>(null)
  const [{ unknown, starts, source, evidence, given }, change, forget] = useDraft('import', CHOICES)
  const [columns, setColumns] = useState<string[]>([])
  const [lines, setLines] = useState<Line[] | null>(null)
  const [read, setRead] = useState<Totals | null>(null) // so far
  const last = lines?.find(line => line.type !== 'error') as Totals | undefined
  const all = last?.dryRun && !last.detail ? rows(last) : null // known once it was tried
  const act = useAct()
  const area = useRef<HTMLDivElement>(null)
  const toWrong = () => requestAnimationFrame(() => toFirst(area.current))
  const send = (dryRun: boolean) =>
    act.run(async () => {
      if (!file) return
      setRead(null)
      const query = new URLSearchParams({ unknown, dryRun: String(dryRun), startAutomations: String(starts) })
      if (source.trim()) query.set('consentSource', source)
      if (evidence) query.set('consentEvidence', evidence)
      for (const [name, to] of Object.entries(given)) query.set(`columns[${name}]`, to)
      const type = /\.(nd)?jsonl?$/i.test(file.name) ? 'application/x-ndjson' : 'text/csv'
      const response = await raw(`/contacts/import?${query}`, {
        method: 'POST',
        headers: { 'Content-Type': type },
        body: file,
      })
      const found: Line[] = []
      for await (const line of linesOf(response))
        if (line.type === 'progress') setRead(line)
        else found.push(line)
      if (!found.some(line => line.type !== 'error')) throw unreachable() // it was cut off
      setLines(found)
      if (!dryRun && !found.some(line => line.type === 'problem')) forget()
    })
  /** What was found is of other choices. */
  const chose = (choices: Partial<typeof CHOICES>) => {
    change(choices)
    setLines(null)
    act.clear()
  }
  const chosen = async (next: File | null) => {
    setFile(next)
    chose({})
    const columns = next && !/\.(nd)?jsonl?$/i.test(next.name) ? await columnsOf(next) : []
    change({ given: Object.fromEntries(Object.entries(given).filter(([name]) => columns.includes(name))) }) // after a reload the file is chosen again
    setColumns(columns)
  }
  const wrong = lines?.filter(line => line.type === 'error') ?? []
  const unsourced = source.trim() ? undefined : wrong.find(line => line.pointer === '/topics')
  const problem =
    act.problem ?? (unsourced ? new Refusal(0, '', '', [{ pointer: SOURCE, message: unsourced.message }]) : null)
  return (
    <Screen
      title="Import contacts"
      lead="A CSV file whose first row names the columns, or NDJSON. Importing a file twice is safe."
    >
      <div class="form" ref={area}>
        <Errors problem={problem}>
          <fieldset class="locked" disabled={act.busy}>
            <div class="field">
              <label for="file">File</label>
              <input
                id="file"
                type="file"
                accept=".csv,.tsv,.txt,.ndjson,.jsonl"
                onChange={event => void chosen(event.currentTarget.files?.[0] ?? null)}
              />
            </div>
            {columns.length > 0 && <Mapping columns={columns} given={given} set={given => chose({ given })} />}
            <Field
              label="Unknown columns"
              value={unknown}
              set={unknown => chose({ unknown })}
              options={[
                ['refuse', 'reject the file'],
                ['skip', 'skip them'],
                ['metadata', 'keep them as custom fields'],
              ]}
              pointer="?unknown"
              hint="Known are email, phone, firstName, lastName, timezone, locale, id, tags, metadata.…, subscriptions.… and topics.…"
            />
            <div class="columns">
              <Field
                label="Source of topic answers"
                value={source}
                set={source => chose({ source })}
                pointer={SOURCE}
                placeholder="sign-up form"
                hint="Without it, rows that would change one are rejected."
              />
              <Field
                label="Evidence"
                value={evidence}
                set={evidence => chose({ evidence })}
                pointer="?consentEvidence"
                hint="The wording they agreed to, or a URL."
              />
            </div>
            <Check
              label="Start flows triggered by new contacts or tags"
              value={starts}
              set={starts => chose({ starts })}
              pointer="?startAutomations"
            />
            <Rest />
          </fieldset>
        </Errors>
        <p class="buttons">
          <Button class="primary" disabled={!file || act.busy} onClick={() => void send(true).then(toWrong)}>
            Preview import
          </Button>
          <Button disabled={!file || act.busy || !last?.dryRun} onClick={() => void send(false).then(toWrong)}>
            Import now
          </Button>{' '}
          {!last?.dryRun && <span class="hint">after the preview</span>}
        </p>
        {(act.busy || (act.problem && read)) && (
          <p role="status">
            {read
              ? `${rows(read).toLocaleString()}${all === null ? '' : ` of ${all.toLocaleString()}`} rows read, ${read.failed.toLocaleString()} rejected…`
              : 'Sending the file…'}
          </p>
        )}
      </div>
      {last && !act.busy && (
        <Section title={last.dryRun ? 'Preview' : 'Result'}>
          {last.detail && (
            <p class="wrong" role="alert">
              {last.detail}
            </p>
          )}
          <Facts
            of={[
              ['New', last.created],
              ['Updated', last.updated],
              ['Unchanged', last.unchanged],
              ['Rejected', last.failed],
            ]}
          />
          {wrong.length > 0 && (
            <>
              <p>
                {plural(wrong.length, 'row')} rejected{wrong.length > MOST_ROWS && `; the first ${MOST_ROWS}`}:
              </p>
              <ul>
                {wrong.slice(0, MOST_ROWS).map(line => (
                  <li key={line.row + line.pointer}>
                    Row {line.row}, <code>{line.pointer}</code>: {line.message}
                  </li>
                ))}
              </ul>
            </>
          )}
          {!last.dryRun && last.created + last.updated > 0 && <Link to="/contacts">View contacts</Link>}
        </Section>
      )}
    </Screen>
  )
}
