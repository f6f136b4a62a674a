import { testPage } from '../support/run-page.ts';

testPage('docs/getting-started.md');
