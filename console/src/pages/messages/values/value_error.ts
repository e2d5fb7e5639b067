/** Bytes are not what their schema says, or the schema is none. */
export class ValueError extends Error {}
