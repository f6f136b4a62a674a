'use strict';
// `npm publish` in a checkout would publish its optional dependencies, a Node for each system, too.
process.stderr.write(
  'Publish what `npm run release` makes: npm publish release/kpng-userspace-VERSION.tgz\n',
);
process.exitCode = 1;
