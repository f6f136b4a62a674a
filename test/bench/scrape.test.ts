import t from 'tap';
import { runScrape } from '../../bench/scrape.ts';

const old = typeof (process as { threadCpuUsage?: unknown }).threadCpuUsage !== 'function';
const skip = old && 'this Node cannot report how long a thread works';

t.test('the benchmark of scrapes runs with every engine that works here', { skip }, async (t) => {
  const lines: string[] = [];
  await runScrape((line) => lines.push(line), { servicePorts: 50, scrapes: 2 });
  const [, node = ''] = lines;
  t.match(node, /^engine node +\d\.\d MB in \d+ ms \(median\), longest turn \d+ ms/);
});
