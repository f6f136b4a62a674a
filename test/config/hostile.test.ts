/** Configuration files that were made to be expensive. None may block the main thread for long. */
import t from 'tap';
import { configurableFlags } from '../../src/cli/parse.ts';
import { CONFIG_LIMITS } from '../../src/config/limits.ts';
import { resolveConfig } from '../../src/config/resolve.ts';
import { readInThread } from '../../src/config/read.ts';

const FIELDS = configurableFlags();
const OWN = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
const { maxFileBytes } = CONFIG_LIMITS;

/** The first problem of a text. */
function problemOf(text: string): string {
  const resolved = resolveConfig('c.yaml', text, FIELDS);
  return resolved.ok ? '' : (resolved.problems[0]?.message ?? '');
}

/** As many of the pieces as fit into a file after a text. */
function fill(piece: (index: number) => string, before = OWN): string {
  const pieces: string[] = [];
  for (let length = before.length, index = 0; ; index += 1) {
    const next = piece(index);
    length += next.length;
    if (length > maxFileBytes) return before + pieces.join('');
    pieces.push(next);
  }
}

const bomb = Array.from({ length: 9 }, (_, level) => {
  const refers = Array.from({ length: 9 }, () => (level === 0 ? 'x' : `*l${level - 1}`));
  return `l${level}: &l${level} [${refers.join(', ')}]\n`;
});

const HOSTILE: Readonly<Record<string, readonly [text: string, problem: RegExp]>> = {
  'complex keys in each other': [`${'? '.repeat(31)}x`, /nested too deeply/],
  'a key that is a map': [`${OWN}? {a: b}\n: c\n`, /a key must be text/],
  'one key again and again': [fill(() => 'a: b\n'), /duplicate key 'a'/],
  'very many keys': [fill((index) => `k${index}: b\n`), /more than 2000 keys and values/],
  'a very long list': [
    fill(() => 'a,', `${OWN}nodeportAddresses: [`) + ']',
    /more than 2000|larger/,
  ],
  'very many documents': [fill(() => '---\n', ''), /more than 10 documents/],
  'deep maps': [`${OWN}${'a: {'.repeat(50)}${'}'.repeat(50)}`, /nested too deeply/],
  'deep lists': [fill(() => '['), /nested too deeply/],
  'an alias bomb': [OWN + bomb.join(''), /the aliases stand for more than 2000 values/],
  'a long key': [`${OWN}${'k'.repeat(maxFileBytes / 2)}: 1\n`, /unknown field/],
  'a file that is too large': [`${OWN}#${'x'.repeat(maxFileBytes)}`, /larger than 256Ki/],
};

for (const [name, [text, problem]] of Object.entries(HOSTILE)) {
  t.test(name, async (t) => t.match(problemOf(text), problem));
}

t.test('a file that exceeds the time or memory of its thread is refused', async (t) => {
  const thread = (code: string): URL => new URL(`data:text/javascript,${code}`);
  const refused = async (code: string, limitMs: number, why: RegExp) => {
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 1);
    const reading = readInThread('c.yaml', OWN, { module: thread(code), limitMs });
    await t.rejects(reading, { code: 'KPNG_CONFIG_INVALID', message: why });
    clearInterval(counting);
    t.not(turns, 0, 'everything else had its turns meanwhile');
  };
  await refused('for (;;);', 500, /^c.yaml: it takes longer than 0.5 s$/);
  const grow = 'const a = []; for (;;) a.push(Array(1e5).fill(0));';
  await refused(grow, 60_000, /^c.yaml: it takes more than 256Mi of memory$/);
});
