// A mail in a frame in which nothing can run, shown once: by a link if it is a message, by a form if it is what somebody types.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { api, got, type Schemas } from './api'
import { useLoaded } from './data'
import { at } from './session'
import { Shown } from './ui'

export type Previewed = { messageId: string } | Omit<Schemas['TemplatePreview'], 'remoteImages'>
interface Showing { url: string; ticket?: string }

const ask = (of: Previewed, remoteImages: boolean): Promise<Showing> => ('messageId' in of
  ? got(api.POST('/messages/{id}/previews', { params: { path: { id: of.messageId } }, body: { remoteImages } }))
  : got(api.POST('/templates/previews', { body: { ...of, remoteImages } })))

export function Preview({ of, width }: { of: Previewed; width?: number }) {
  const [images, setImages] = useState(false)
  const shown = useLoaded(() => ask(of, images), [JSON.stringify(of), images], undefined, 0)
  return <Shown of={shown}>{showing => <div class="preview">
    <Frame key={showing.ticket ?? showing.url} {...showing} width={width} />
    <p class="soft">{images ? 'Remote images are loaded.' : <>Scripts do not run here, and remote images are not loaded. <button type="button" class="small" onClick={() => setImages(true)}>Show remote images</button></>}</p>
  </div>}</Shown>
}

function Frame({ url, ticket, width }: Showing & { width: number | undefined }) {
  const name = useId(), form = useRef<HTMLFormElement>(null)
  useEffect(() => form.current?.submit(), [])
  return <>
    {ticket && <form ref={form} method="post" action={at(url)} target={name} hidden><input type="hidden" name="ticket" value={ticket} /></form>}
    <iframe name={name} src={ticket ? undefined : at(url)} title="The mail as HTML" sandbox="" referrerpolicy="no-referrer" width={width} />
  </>
}
