# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The template of the HTML report, with its style."""

from __future__ import annotations

# Series colours: distinct for the common kinds of colour blindness and at least 3:1 against the card they stand on.
_STYLE = """
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --ink: #1b1f24; --soft: #525a64; --rule: #c9ced6;
  --good: #0b6b3a; --bad: #b3261e; --unsure: #7a5200; --link: #0b57d0;
  --s0: #0067a5; --s1: #c24e00; --s2: #00785a; --s3: #a3417f;
  --s4: #806000; --s5: #4b4bb5; --s6: #2b7f93; --s7: #6b6b6b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111418; --card: #1b2027; --ink: #e8eaed; --soft: #a9b1bb; --rule: #46505c;
    --good: #6fd39a; --bad: #ff8a80; --unsure: #f0c060; --link: #8ab4f8;
    --s0: #5cb8f5; --s1: #ff9a52; --s2: #3fd0a4; --s3: #ec9acb;
    --s4: #e3c33c; --s5: #a9a9ff; --s6: #7fd8ea; --s7: #b9bec5;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1320px; padding: 10px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .4rem 0; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.2rem 0 .4rem; }
h4 { font-size: 1rem; margin: 0 0 .4rem; }
p { margin: .4rem 0; max-width: 78ch; }
a { color: var(--link); }
nav ul, .keys { list-style: none; margin: .3rem 0; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
.keys { font-size: .9rem; }
.keys span { display: inline-block; width: 1.4em; text-align: center; }
.soft { color: var(--soft); font-size: .9rem; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 10px; min-width: 0; }
.beside { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); }
.plots { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
figure { margin: 0 auto; width: 100%; max-width: 600px; min-width: 0; }
figcaption { font-weight: 600; font-size: .95rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
details { font-size: .9rem; color: var(--soft); }
summary { cursor: pointer; }
.scroll { overflow-x: auto; max-width: 100%; background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  margin: .5rem 0; }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: 8px 10px; }
th, td { text-align: left; padding: 5px 10px; border-top: 1px solid var(--rule); vertical-align: top; max-width: 26rem;
  min-width: 4rem; }
th { color: var(--soft); font-weight: 600; }
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th.figure { white-space: normal; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
td:first-child:not(.long), th { white-space: nowrap; }
.long { overflow-wrap: break-word; min-width: 9rem; }
@media (max-width: 480px) { .card { padding: 8px 4px; } }
@media print { .scroll { overflow: visible; } }
"""

_MACROS = """
{% macro table(it) %}
{% if it.rows %}
<div class="scroll" tabindex="0" role="region" aria-label="{{ it.caption }}">
<table>
<caption>{{ it.caption }}</caption>
<thead><tr>
{% for column in it.columns %}
<th scope="col"{% if loop.index0 in it.figures %} class="figure"{% endif %}>{{ column }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in it.rows %}
<tr>
{% for cell in row %}
{% set kind = 'figure' if loop.index0 in it.figures else 'long' if cell.text | length > 24 else '' %}
<td class="{{ kind }} {{ cell.mood }}">{{ cell.text }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
{% endmacro %}
{% macro legend(keys) %}
{% if keys %}
<ul class="keys">
{% for key in keys %}
<li><span aria-hidden="true" style="color: var({{ key.variable }})">{{ key.mark }}</span> {{ key.text }}</li>
{% endfor %}
</ul>
{% endif %}
{% endmacro %}
{% macro drawn(plot) %}
<figure class="plot">
<figcaption>{{ plot.title }}</figcaption>
{{ plot | svg }}
<details><summary>The figures in words</summary><p>{{ plot.words }}</p></details>
</figure>
{% endmacro %}
{% macro compared(one) %}
<h3>{{ one.b_label or 'B' }} against {{ one.a_label or 'A' }} on {{ one.host }}</h3>
{% set said = tables.verdict(one.verdict) %}
<p><strong class="{{ said.mood }}">{{ said.text }}</strong>{% if one.why %}: {{ one.why }}{% endif %}

<span class="soft">{{ one.recorded_at }}</span></p>
{% if one.regression %}
{% if not one.regression.judged %}<p>Regression gate: not judged.</p>
{% elif one.regression.passed %}<p class="good">Regression gate: passed.</p>
{% else %}<p class="bad">Regression gate: failed. {{ one.regression.failures | join('; ') }}</p>
{% endif %}
{% endif %}
{% for note in one.notes %}<p class="soft">{{ note }}</p>
{% endfor %}
{{ table(tables.comparison(one)) }}
{% if one.differences %}{{ table(tables.differences(one.differences, one.a_label, one.b_label)) }}
{% elif one.points %}<p class="soft">Nothing that is on record differs between the two.</p>
{% endif %}
{% endmacro %}
"""

PAGE = (
    _MACROS
    + """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>SGLang benchmark report</title>
<style>"""
    + _STYLE
    + """</style>
</head>
<body>
<header>
<h1>SGLang benchmark report</h1>
<p class="soft">Hosts: {{ report.hosts | length }}. Configurations: {{ report.configurations | length }}.
{% if report.recorded_at %}
Newest record: <time datetime="{{ report.recorded_at }}">{{ report.recorded_at }}</time>.
{% else %}
Nothing is on record.
{% endif %}
</p>
{% for words in report.models %}
<p>{{ words }}</p>
{% endfor %}
<nav aria-label="Sections"><ul>
<li><a href="#summary">Summary</a></li>
{% if ladders %}<li><a href="#ladder">Against concurrency</a></li>
{% endif %}
{% if fronts %}<li><a href="#pareto">Throughput and user speed</a></li>
{% endif %}
<li><a href="#start">Starts</a></li>
<li><a href="#baseline">Baseline</a></li>
<li><a href="#experiments">A/B and explanations</a></li>
<li><a href="#sweeps">Sweeps</a></li>
<li><a href="#runs">All runs</a></li>
</ul></nav>
</header>
<main>
<section aria-labelledby="summary">
<h2 id="summary">Summary</h2>
{{ table(tables.summary(report)) }}
{{ table(tables.winners(report)) }}
{% if warnings %}
<h3>To know of valid figures</h3>
<ul>{% for warning in warnings %}<li>{{ warning }}</li>
{% endfor %}</ul>
{% endif %}
</section>
{% if ladders %}
<section aria-labelledby="ladder">
<h2 id="ladder">Against concurrency</h2>
<p class="soft">Newest valid run of each configuration. Bars: from the least to the most of the repetitions, for power
from the least to the most GPU.</p>
{% for section in ladders %}
<h3>{{ section.heading }}</h3>
<div class="beside">
{% for group in section.groups %}
<div class="card">
<h4>{{ group.heading }}</h4>
{{ legend(group['keys']) }}
{% if group.note %}<p class="soft">{{ group.note }}</p>
{% endif %}
<div class="plots">
{% for plot in group.plots %}{{ drawn(plot) }}{% endfor %}
</div>
{% if not group.plots %}<p>There is no valid figure to draw.</p>
{% endif %}
</div>
{% endfor %}
</div>
{% endfor %}
</section>
{% endif %}
{% if fronts %}
<section aria-labelledby="pareto">
<h2 id="pareto">Throughput and user speed</h2>
<p class="soft">Right and up is better. The broad line is the frontier: no other configuration beats its points in both.
Numbers at it are concurrencies. Tok/s per user is 1000 by the median time per output token in ms.</p>
<div class="beside">
{% for section in fronts %}
<div class="card">
<h4>{{ section.heading }}</h4>
{% for group in section.groups %}
{{ legend(group['keys']) }}
{% if group.note %}<p class="soft">{{ group.note }}</p>
{% endif %}
{% for plot in group.plots %}{{ drawn(plot) }}{% endfor %}
{% endfor %}
</div>
{% endfor %}
</div>
</section>
{% endif %}
<section aria-labelledby="start">
<h2 id="start">Starts</h2>
{% if starts %}
{{ legend(start_keys) }}
<div class="plots">
{% for plot in starts %}<div class="card">{{ drawn(plot) }}</div>
{% endfor %}
</div>
{% endif %}
{{ table(tables.starts(report)) }}
{% if not tables.starts(report).rows %}<p>No start is on record with a run.</p>
{% endif %}
</section>
<section aria-labelledby="baseline">
<h2 id="baseline">Against the baseline</h2>
{% for one in baselines %}{{ compared(one) }}{% endfor %}
{% for one in unjudged %}{{ table(one) }}{% endfor %}
{% if not baselines and not unjudged %}<p>No run was compared with a baseline.</p>
{% endif %}
</section>
<section aria-labelledby="experiments">
<h2 id="experiments">A/B and explanations</h2>
{% for one in experiments %}{{ compared(one) }}{% endfor %}
{% for one in explanations %}
<h3>What makes {{ one.b_label or 'B' }} differ from {{ one.a_label or 'A' }} on {{ one.host }}</h3>
{{ table(tables.steps(one)) }}
{% for note in one.notes %}<p class="soft">{{ note }}</p>
{% endfor %}
{{ table(tables.breakdown(one)) }}
{% endfor %}
{% if not experiments and not explanations %}<p>None is on record.</p>
{% endif %}
</section>
<section aria-labelledby="sweeps">
<h2 id="sweeps">Sweeps</h2>
{% for one in sweeps %}
<h3>Sweep on {{ one.host }} <span class="soft">{{ one.recorded_at }}</span></h3>
<p>{{ sweep_words(one) }}</p>
{{ table(tables.sweep(one)) }}
{% else %}
<p>None is on record.</p>
{% endfor %}
</section>
<section aria-labelledby="runs">
<h2 id="runs">All runs</h2>
{{ table(tables.runs(report)) }}
{% if not tables.runs(report).rows %}<p>Nothing is on record.</p>
{% endif %}
</section>
</main>
</body>
</html>"""
)
