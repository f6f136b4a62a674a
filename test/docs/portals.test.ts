import { testPage } from '../support/run-page.ts';

// What writes rules and addresses is run by test/system/docs.test.ts.
testPage('docs/reference/portals.md');
