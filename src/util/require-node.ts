/** Throws if Node is too old for the library. Imported first, for its side effect. */
import { KpngError } from '../errors.ts';

/** As in package.json's `engines`. */
const OLDEST = [22, 19] as const;

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
  throw new KpngError(
    'KPNG_NODE_TOO_OLD',
    `kpng-userspace needs Node ${OLDEST.join('.')} or newer, and this is ${process.versions.node}`,
  );
}
