// The screens that the canvas is loaded for.
export { FlowEditor } from './editor'
export { Versions } from './versions'
