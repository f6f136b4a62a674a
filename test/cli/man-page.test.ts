import t from 'tap';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { manPage } from '../../tools/release/man-page.ts';

const page = manPage(REGISTRY, { version: '1.2.3', date: '2026-01-02' });

t.test('it has every command and flag', async (t) => {
  const commands = [...REGISTRY.sources, ...REGISTRY.sinks, ...REGISTRY.others];
  for (const { word, flags } of commands) {
    t.ok(page.includes(`.B ${word.replaceAll('-', '\\-')}`), word);
    for (const name of Object.keys({ ...flags, ...GLOBAL_FLAGS })) {
      t.ok(page.includes(`\\fB\\-\\-${name.replaceAll('-', '\\-')}\\fR`), `--${name}`);
    }
  }
  t.match(page, /^\.TH KPNG\\-USERSPACE 1 "2026-01-02" "kpng\\-userspace 1\.2\.3"/);
});

t.test('each line is a request that man(7) knows, or text', async (t) => {
  const known = new Set(['TH', 'SH', 'TP', 'IP', 'B', 'BR', 'nf', 'fi']);
  for (const line of page.split('\n')) {
    const request = /^[.'](\w*)/.exec(line)?.[1];
    if (request !== undefined) t.ok(known.has(request), line);
    t.notMatch(line, /[^\x20-\x7e]/, 'plain characters only');
  }
});
