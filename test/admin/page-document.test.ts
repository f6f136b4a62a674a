/** How the status page is put together; what it does is tested in a browser. */
import { createHash } from 'node:crypto';
import { Script } from 'node:vm';
import t from 'tap';
import { answerPage } from '../../src/admin/page.ts';

const page = answerPage({ path: '/', method: 'GET' });
const html = typeof page?.body === 'string' ? page.body : '';
const between = (start: string, end: string): string =>
  html.slice(html.indexOf(start) + start.length, html.indexOf(end));
const script = between('<script type="module">', '</script>');
const style = between('<style>', '</style>');

function hash(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

t.test('one document has style and script inside, and its policy allows just these', async (t) => {
  const policy = page?.headers?.['content-security-policy'] ?? '';
  t.ok(policy.includes(`script-src ${hash(script)};`));
  t.ok(policy.includes(`style-src ${hash(style)};`));
  t.match(policy, /default-src 'none'/);
  t.match(policy, /frame-ancestors 'none'/);
  t.notMatch(policy, /unsafe|\*/);
  const named = [...html.replaceAll('http://www.w3.org/2000/svg', '').matchAll(/https?:\/\//g)];
  t.equal(named.length, 0, 'no address of anyone else');
  t.notMatch(html, /\sstyle="|\son\w+="/, 'no inline attributes, which the policy forbids');
});

t.test('the modules fit into one script', async (t) => {
  t.doesNotThrow(() => new Script(`(async () => {${script}})`), 'no name is used twice');
  t.notMatch(script, /^(?:import|export) /m);
  t.notMatch(script, /innerHTML|insertAdjacentHTML|document\.write|eval\(/, 'texts stay texts');
});

t.test('it is at the root only, and only to be read', async (t) => {
  t.equal(page?.status, 200);
  t.equal(answerPage({ path: '/', method: 'POST' }), undefined);
  t.equal(answerPage({ path: '/index.html', method: 'GET' }), undefined);
});
