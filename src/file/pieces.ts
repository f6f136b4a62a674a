/**
 * A state file is not parsed as a whole, where that can be avoided: a tree of all its values would take
 * a hundred times its size. It is cut into pieces that can be parsed by themselves, and of those only
 * the ones that have changed since the file was read last are parsed again.
 */

/** A part of a text that can be parsed by itself. */
export interface Piece {
  readonly text: string;
  /** Its offset in the text that it was cut out of. */
  readonly start: number;
}

/** How pieces are written: each as a YAML list with one item, or as a JSON value. */
export type Form = 'block' | 'json';

/** A text cut into the items of one of its lists, and the rest. */
export interface Split {
  readonly form: Form;
  readonly items: readonly Piece[];
  /** The text with that list empty. */
  readonly rest: string;
  /** Offset of the list's key, in the text as in the rest. */
  readonly keyAt: number;
  /** Offset in the rest where the items have been, and how long they were with all between them. */
  readonly cutAt: number;
  readonly cutLength: number;
}

/** The offset in the text that was cut, of an offset in its rest. */
export function offsetBefore({ cutAt, cutLength }: Split, offsetInRest: number): number {
  return offsetInRest < cutAt ? offsetInRest : offsetInRest + cutLength;
}
