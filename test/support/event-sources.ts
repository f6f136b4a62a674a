/** What the source code says about its diagnostics channels. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const SRC = join(import.meta.dirname, '..', '..', 'src');

export interface EventField {
  readonly name: string;
  readonly type: string;
}

export interface EventChannel {
  /** With the prefix that all have. */
  readonly channel: string;
  /** The folder of src/ that publishes on it. */
  readonly folder: string;
  /** The comment of the event's type. */
  readonly meaning: string;
  readonly fields: readonly EventField[];
}

interface Shape {
  readonly meaning: string;
  readonly fields: readonly EventField[];
  /** Another type that it has the fields of, too. */
  readonly parent: string | undefined;
}

const CHANNEL = /export const \w+ = typedChannel<(\w+)>\(\s*'([^']+)',?\s*\)/g;
const SHAPE =
  /(?:\/\*\*((?:(?!\*\/)[^])*)\*\/\n)?(?:export )?(?:interface (\w+)(?: extends (\w+))? \{\n([^]*?)\n\}|type (\w+) = (\w+);)/g;
const FIELD = /^ {2}(\w+)(\??):\s+([^]*?);$/gm;

/** Every channel of src/, by folder and in the order of the code. */
export function eventChannels(): EventChannel[] {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') && path !== join('util', 'channel.ts'))
    .sort();
  return files.flatMap((file) => {
    const text = readFileSync(join(SRC, file), 'utf8');
    const shapes = shapesOf(text);
    return [...text.matchAll(CHANNEL)].map(([, type = '', name = '']): EventChannel => {
      const shape = shapes.get(type);
      if (shape === undefined) throw new Error(`${file}: ${type} of ${name} is not in this file`);
      const [folder = ''] = file.split(/[\\/]/);
      const channel = `kpng-userspace:${name}`;
      return { channel, folder, meaning: shape.meaning, fields: fieldsOf(type, shapes) };
    });
  });
}

function shapesOf(text: string): ReadonlyMap<string, Shape> {
  const shapes = new Map<string, Shape>();
  for (const [, comment = '', name, parent, body = '', alias, aliased] of text.matchAll(SHAPE)) {
    const meaning = plain(comment);
    const bare = body.replaceAll(/\/\*\*[^]*?\*\//g, '');
    const fields = [...bare.matchAll(FIELD)].map(([, field = '', optional = '', type = '']) => {
      const options = type.replaceAll(/\s+/g, ' ').replace(/^\| /, '');
      return { name: field, type: optional === '' ? options : `${options} | undefined` };
    });
    if (name !== undefined) shapes.set(name, { meaning, fields, parent });
    else if (alias !== undefined) shapes.set(alias, { meaning, fields: [], parent: aliased });
  }
  return shapes;
}

function fieldsOf(type: string, shapes: ReadonlyMap<string, Shape>): EventField[] {
  const shape = shapes.get(type);
  if (shape === undefined) throw new Error(`${type} is not in this file`);
  const inherited = shape.parent === undefined ? [] : fieldsOf(shape.parent, shapes);
  return [...inherited, ...shape.fields];
}

/** The text of a comment, lists left out, in one line. */
function plain(comment: string): string {
  return comment
    .replaceAll(/^\s*\* ?/gm, '')
    .replace(/\n- [^]*$/, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}
