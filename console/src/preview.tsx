// A mail in a frame in which nothing can run, from a link that shows it once.
import { useState } from 'preact/hooks'
import { api, got } from './api'
import { useLoaded } from './data'
import { at } from './session'
import { Shown } from './ui'

export type Previewed = { messageId: string } | { templateId: string; contactId: string | null; trigger: Record<string, unknown> }

function ask(of: Previewed, remoteImages: boolean) {
  if ('messageId' in of) return got(api.POST('/messages/{id}/previews', { params: { path: { id: of.messageId } }, body: { remoteImages } }))
  const { templateId, ...rest } = of
  return got(api.POST('/templates/{id}/previews', { params: { path: { id: templateId } }, body: { ...rest, remoteImages } }))
}

export function Preview({ of, width }: { of: Previewed; width?: number }) {
  const [images, setImages] = useState(false)
  const link = useLoaded(() => ask(of, images), [JSON.stringify(of), images])
  return <Shown of={link}>{({ url }) => <div class="preview">
    <iframe key={url} src={at(url)} title="The mail as HTML" sandbox="" referrerpolicy="no-referrer" width={width} />
    <p class="soft">{images ? 'Remote images are loaded.' : <>Scripts do not run here, and remote images are not loaded. <button type="button" class="small" onClick={() => setImages(true)}>Show remote images</button></>}</p>
  </div>}</Shown>
}
