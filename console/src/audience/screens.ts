export { EditSegment, NewSegment, Segment, Segments } from './segments'
