/** Both targets of Dockerfile.linux, built on stand-ins for the base images and run (deploy/image/try.sh says how). */
import { join } from 'node:path';
import t from 'tap';
import { missing, run } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const skip =
  process.getuid?.() === 0 ? missing('buildah', 'mmdebstrap') : 'only root can build these images';

t.test('images are built, proxy and end, with no more than they need', { skip }, async (t) => {
  const { code, text } = await run(join(ROOT, 'deploy', 'image', 'try.sh'), [], { cwd: ROOT });
  t.equal(code, 0, text);
  const [, slim = '', full = ''] = text.split(/^== size of .*$/m);
  t.match(slim, /user, capabilities, no new privileges: 65532 0{16} 1$/m);
  // NET_ADMIN and NET_RAW.
  t.match(full, /user, capabilities, no new privileges: 0 0{12}3000 1$/m);
  for (const said of [slim, full]) {
    for (const path of ['healthz', 'livez', 'readyz']) t.match(said, `/${path}: 200`);
    t.match(said, /^through the proxy$/m);
    t.match(said, /^ended with 0 after TERM to process 1$/m);
  }
  t.match(full, /^table inet kpng-userspace$/m, 'its nft has written rules');
});
