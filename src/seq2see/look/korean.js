/* What the page says in Korean, by what it says in English. Longer texts stand in both languages in sections.html. */

const KOREAN = {
  // Names of the parts
  "Tokens": "토큰",
  "Embeddings": "임베딩",
  "Encoder": "인코더",
  "Layers": "층",
  "Decoder": "디코더",
  "Cross-attention": "인코더-디코더 어텐션",
  "Alignment": "단어 정렬",
  "Layer predictions": "층별 예측",
  "Next token": "다음 토큰",
  "Beam search": "빔 서치",
  "Parts": "목차",
  "Skip to the first part": "본문 바로가기",
  "Made by seq2see from one trained model. Everything is in this file: it needs no network.":
    "seq2see가 학습된 모델 하나로 만든 페이지입니다. 모든 내용이 이 파일에 들어 있어 네트워크가 필요 없습니다.",

  // Heading
  "{encoder} + {decoder} layers, width {width}, {heads} heads, {parameters} parameters":
    "인코더 {encoder}층 + 디코더 {decoder}층, 차원 {width}, 헤드 {heads}개, 매개변수 {parameters}개",
  "This translation was given. The model's own output: ": "직접 지정한 번역입니다. 모델이 생성한 번역: ",

  // Pieces, layers, heads
  "source, {n} tokens": "원문, 토큰 {n}개",
  "input of the decoder": "디코더 입력",
  "output, {n} tokens": "디코더 출력, 토큰 {n}개",
  "source": "원문",
  "translation": "번역문",
  "encoder": "인코더",
  "decoder": "디코더",
  "layer {n}": "{n}층",
  "head {n}": "헤드 {n}",
  "mean": "평균",
  "mean of the heads": "헤드 평균",
  "column {n}": "{n}번째 차원",
  "after": "통과 후",
  "show": "보기",
  "the tokens": "토큰",
  "the positional encoding": "포지셔널 인코딩",
  "the positions": "위치 임베딩",
  "their sum": "둘의 합",
  "numbers as colours": "색으로 나타낸 수치",
  "numbers as colours, one row per token": "색으로 나타낸 수치, 한 행이 토큰 하나",

  // Attention
  "attention weights": "어텐션 가중치",
  " attends to ": " → ",
  "colours by the square root": "색은 제곱근에 비례",
  "grey: hidden by the mask": "회색: 마스크로 가려짐",
  "hidden by the mask: 0": "마스크로 가려짐: 0",
  "weights; read them with the arrow keys, choose the row with Enter": "가중치 표. 화살표 키로 값을 읽고 Enter로 행을 고릅니다",
  "Choose one head to see how its weights are computed.": "헤드를 하나 고르면 가중치가 어떻게 계산되는지 볼 수 있습니다.",
  "It can also be switched off there.": "그 헤드를 끌 수도 있습니다.",
  "One weight of head {n}": "헤드 {n}의 가중치 하나",
  "query of ": "쿼리: ",
  "key of ": "키: ",
  "their product": "원소별 곱",
  "v × tanh of their sum": "v × tanh(둘의 합)",
  "sum {sum}; after the softmax of the row: ": "내적 {sum}. 행 전체에 소프트맥스를 적용한 값은 ",
  "sum {sum}, divided by √{width}: {score}; after the softmax of the row: ": "내적 {sum} ÷ √{width} = {score}. 행 전체에 소프트맥스를 적용한 값은 ",
  ", the weight of this value.": "입니다. 이 비율만큼 값(value)을 반영합니다.",
  "switched off": "꺼짐",

  // Alignment and importance
  "alignment": "단어 정렬",
  "by": "기준",
  "leaving out": "토큰 제거",
  "gradient × input": "기울기 × 입력",
  "natural logarithms; blue: the input token helps, brown: it hurts": "단위: nat. 파랑: 도움, 갈색: 방해",

  // The lens, the candidates, the beam
  "predictions of each layer": "층별 예측(로짓 렌즈)",
  "probability of the layer's prediction": "예측 확률",
  "{piece} has rank {rank}, {share}": "{piece}: {rank}위, {share}",
  "output tokens and their probabilities": "출력 토큰과 확률",
  "There was no search.": "빔 서치를 하지 않았습니다.",
  "beam search": "빔 서치",
  "finished": "완성",
  "finished, best first": "완성된 번역, 점수순",
  "(empty)": "(빈 번역)",
  "kept": "유지",
  "pruned": "제외됨",
  "begin": "시작",
  "score": "점수",
  "probability": "확률",
  "the translation": "번역 결과",
  "another finished hypothesis": "완성된 다른 번역",
  "continued": "확장한 후보",

  // What depends on the model
  "A sinusoidal positional encoding is added, so that the order matters: high frequencies on the left, low ones on the right.":
    "순서를 알 수 있도록 포지셔널 인코딩(사인·코사인 값)을 더합니다. 왼쪽은 주기가 짧은 파형, 오른쪽은 주기가 긴 파형입니다.",
  "A learned vector for each position is added, so that the order matters.": "순서를 알 수 있도록 학습된 위치 임베딩을 더합니다.",
  "This model adds nothing for the position: it rotates queries and keys by an angle that grows with it, so that only distances matter.":
    "이 모델은 위치를 더하지 않습니다. 대신 쿼리와 키를 위치에 비례하는 각도만큼 회전시키므로 토큰 사이의 거리만 영향을 줍니다.",
  "An RNN needs no positions: it reads one token after the other.": "RNN은 토큰을 하나씩 차례로 읽으므로 위치 정보가 필요 없습니다.",
  "This model has no positional encoding.": "이 모델에는 포지셔널 인코딩이 없습니다.",
  "Layer normalization is applied to the input of each sub-layer.": "각 서브층의 입력에 층 정규화(LayerNorm)를 적용합니다.",
  "Layer normalization is applied to each sum.": "더한 결과에 층 정규화(LayerNorm)를 적용합니다.",
  "the last layer norm and the output layer": "마지막 층 정규화와 출력층",
  "the output layer": "출력층",
  ", after a last layer norm,": "(층 정규화를 한 번 더 적용한 것)",
  "This is the model's own search, without the given translation. ": "지정한 번역과 관계없이 모델이 스스로 탐색한 과정입니다. ",
  "The search keeps the {beam} best hypotheses at each step, and ranks finished ones by their score (α = {alpha}).":
    "단계마다 점수가 높은 후보 {beam}개만 남기고, 완성된 것은 점수로 순위를 매깁니다(α = {alpha}).",
  "The search takes the most probable token at each step (greedy search).": "단계마다 확률이 가장 높은 토큰을 고릅니다(그리디 서치).",
  "rotation of queries and keys by position: cosines and sines of one head": "위치마다 쿼리와 키를 회전시키는 각도: 헤드 하나의 코사인과 사인",

  // The live page: texts and conversation
  "To the text": "입력란 바로가기",
  "What to do": "작업 선택",
  "Translate": "번역",
  "Chat": "대화",
  "Model": "모델",
  "To": "목표 언어",
  "Text": "원문",
  "Translation": "번역문",
  "Conversation": "대화",
  "Your line": "메시지",
  "Send": "보내기",
  "API key": "API 키",
  "Use it": "적용",
  "Type a text: its translation appears beside it, and everything inside the model below, part by part in the order of the paper “Attention Is All You Need”.":
    "글을 입력하면 옆에 번역문이 나타나고, 아래에는 논문 “Attention Is All You Need”의 순서대로 모델 내부가 단계별로 펼쳐집니다.",
  "Write a line: the model answers, and everything that happened inside it appears below, part by part in the order of the paper “Attention Is All You Need”.":
    "메시지를 보내면 모델이 답하고, 아래에는 논문 “Attention Is All You Need”의 순서대로 모델 내부가 단계별로 펼쳐집니다.",
  "A sentence, in: {language}": "문장을 입력하세요({language})",
  "Try one:": "예문:",
  "A sentence like those the model learned from": "모델이 학습한 것과 비슷한 문장을 입력하세요",
  "seq2see: all numbers are computed by the model on this server; nothing is sent elsewhere.":
    "seq2see: 모든 수치는 이 서버의 모델에서 계산하며, 외부로 전송되는 것은 없습니다.",
  "{name}, {parameters} parameters": "{name}, 매개변수 {parameters}개",
  "probability {share}": "확률 {share}",
  "Too long to explain: {n} tokens. At most {most} are shown.": "너무 길어서 내부를 보여 줄 수 없습니다: {n}토큰. {most}토큰까지 볼 수 있습니다.",
  "the text was truncated: it is longer than the model reads": "모델이 읽을 수 있는 길이를 넘어 뒷부분을 잘랐습니다",
  "Fast and exact arithmetic give different translations here. Explained below: ": "빠른 연산과 정밀 연산의 결과가 다릅니다. 아래에서 설명하는 번역: ",

  // The live page: what one changes
  "across": "인코더-디코더",
  "Switch this head off": "이 헤드 끄기",
  "Switch this head on again": "이 헤드 다시 켜기",
  "use this instead": "이 토큰으로 바꾸기",
  "What changes": "달라진 점",
  "undo: {what}": "되돌리기: {what}",
  "begins with “{text}”": "시작 부분: “{text}”",
  "before": "변경 전",
  "now": "변경 후",
  "the same": "같음",
  "Probability of each token of the old translation: before → now": "변경 전 번역의 토큰별 확률: 변경 전 → 변경 후",

  // The live page: what goes wrong
  "The server cannot be reached": "서버에 연결할 수 없습니다",
  "This server asks for an API key": "이 서버를 쓰려면 API 키가 필요합니다",
  "The server does not know this API key": "등록되지 않은 API 키입니다",
  "The request did not arrive in time (408)": "요청이 제한 시간 안에 도착하지 않았습니다(408)",
  "The request is too large (413)": "한 번에 보낼 수 있는 양을 넘었습니다(413)",
  "The server is busy (429)": "요청이 많아 지금은 처리할 수 없습니다(429)",
  "This server runs without PyTorch, so that it cannot show the inside of a translation.": "이 서버에는 파이토치가 없어 번역 과정을 보여 줄 수 없습니다.",
  "The model is not ready (503)": "모델이 아직 준비되지 않았습니다(503)",
  "The server did not answer in time (504)": "제한 시간 안에 응답을 받지 못했습니다(504)",
  "The server refused the request ({status})": "요청을 처리할 수 없습니다({status})",
  "A shorter text may help.": "더 짧은 글로 시도해 보세요.",
  "Trying again in {n} s.": "{n}초 뒤에 다시 시도합니다.",
};

/** Sentences of the server's, by their shape. */
const KOREAN_SENTENCES = [
  [/^The lines are drawn by head (\d+) of layer (\d+), which agrees with leaving tokens out for (\d+%) of the output tokens of (\d+) validation pairs \((?:chosen on (\d+) others|[^)]*)\)(\. Weak.*)?\.$/,
    (_, head, layer, share, pairs, others, weak) => `${layer}층 헤드 ${head}의 어텐션을 따라 그렸습니다. 검증 데이터 ${pairs}쌍에서 출력 토큰의 ${share}가 토큰 제거 결과와 일치했습니다${others ? `(헤드는 다른 ${others}쌍으로 골랐습니다)` : "(헤드를 고른 것과 같은 쌍이므로 실제보다 높습니다)"}.${weak ? " 일치도가 낮아 선이 대부분 틀릴 수 있습니다." : ""}`],
  [/^The lines are drawn by (\d+) heads of (layer (\d+)|(\d+) layers), which agree with leaving tokens out for (\d+%) of the output tokens of (\d+) validation pairs \((?:chosen on (\d+) others|[^)]*)\)(\. Weak.*)?\.$/,
    (_, heads, where, layer, layers, share, pairs, others, weak) => `${layer ? `${layer}층` : `${layers}개 층`} 헤드 ${heads}개의 어텐션을 따라 그렸습니다. 검증 데이터 ${pairs}쌍에서 출력 토큰의 ${share}가 토큰 제거 결과와 일치했습니다${others ? `(헤드는 다른 ${others}쌍으로 골랐습니다)` : "(헤드를 고른 것과 같은 쌍이므로 실제보다 높습니다)"}.${weak ? " 일치도가 낮아 선이 대부분 틀릴 수 있습니다." : ""}`],
  [/^The lines are drawn by .*; how well is unknown without short validation pairs\.$/, "짧은 검증 문장이 없어 선이 얼마나 정확한지는 알 수 없습니다."],
  [/^(the .*?) has what the model has no token for: (.*)\. It can only guess there$/,
    (_, where, letters) => `${/given/.test(where) ? "지정된 번역" : "문장"}에 모델의 토큰으로 나타낼 수 없는 글자가 있습니다: ${letters.replace(/ and (\d+) more$/, " 외 $1자")}. 그 부분은 추측일 뿐입니다.`],
  [/^the sentence is too long: only its first (\d+) tokens were read$/, "문장이 너무 길어 앞의 $1토큰만 읽었습니다."],
  [/^the given translation is too long: only its first (\d+) tokens count$/, "지정된 번역이 너무 길어 앞의 $1토큰만 반영합니다."],
];
