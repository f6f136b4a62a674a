import { testPage } from '../support/run-page.ts';

testPage('docs/tutorial/getting-started.md');
