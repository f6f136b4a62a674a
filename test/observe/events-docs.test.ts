import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { eventChannels } from '../support/event-sources.ts';
import { tableRows } from '../support/markdown.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(ROOT, 'docs/reference/events.md'), 'utf8');
const rows = tableRows(page).map(([channel = '', when = '', fields = '']) => {
  return { channel: channel.replaceAll('`', ''), when, fields };
});

t.test('every channel is in docs/reference/events.md, and every one there exists', async (t) => {
  const channels = eventChannels();
  t.ok(channels.length > 50, `${channels.length} were found`);
  t.same(rows.map(({ channel }) => channel).sort(), channels.map(({ channel }) => channel).sort());
  t.equal(new Set(channels.map(({ channel }) => channel)).size, channels.length, 'no name twice');
});

t.test('every channel has its fields there, with their types, and says when', async (t) => {
  const documented = new Map(rows.map((row) => [row.channel, row]));
  for (const { channel, fields } of eventChannels()) {
    const code = fields.map(({ name, type }) => `\`${name}: ${type}\``).join(', ');
    t.ok(fields.length > 0, channel);
    t.equal(documented.get(channel)?.fields.replaceAll('\\|', '|'), code, channel);
    t.match(documented.get(channel)?.when, /^[A-Z].*\.$/, channel);
  }
});
