import t from 'tap';
import { runIntegrity } from '../../bench/integrity.ts';

t.test('the benchmark of integrity finds nothing wrong', { timeout: 100_000 }, async (t) => {
  const lines: string[] = [];
  const ok = await runIntegrity(24, (line) => lines.push(line), 600);
  t.equal(lines.length, 6);
  for (const line of lines) t.match(line, /^ok /, line);
  t.equal(ok, true);
  t.match(lines.join('\n'), /served by alder, birch, cedar; SHA-256 equal/);
  t.match(lines.join('\n'), /begun after it was gone: \d+.*, failed: 0/);
});
